"""A server of a recogniser: many callers in one process, by protocols that clients have already.

app.py             addresses, and who may use them
server.py          models, limits and figures
calls.py           calls as the event loop uses them
worker.py          threads that run their sessions
call_store.py      where calls wait for their clients to come back
async_store.py     it, as the event loop uses it
resumption.py      a call as bytes
uploads.py         uploads decoded in processes of their own, each an upload_process.py
connections.py     bounds for each connection, with fair.py and places.py
protocols/         asrkit's own, Vosk's and OpenAI's
client.py          a client of asrkit's own protocol, which comes back when the connection is lost
page/              what a browser gets at /
"""
