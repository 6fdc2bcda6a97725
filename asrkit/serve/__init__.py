"""A server for many concurrent calls in one process, with protocols that clients already have.

app.py             addresses, and who may use them
server.py          models, limits and metrics
calls.py           calls as the event loop uses them
worker.py          threads that run the sessions of the calls
store.py           storage of suspended calls
resumption.py      a call as bytes
uploads.py         uploads, each decoded in another process by decode.py
converse.py        a conversation over a connection, in the dialect of a protocol
resumable.py       a conversation whose call outlives its connection
admission.py       which client gets a stream of a full server
dialects/          those of asrkit, Vosk, OpenAI, Deepgram, Twilio and Home Assistant
client.py          a client of asrkit's own protocol, which reconnects
page/              the page that a browser gets at /, and its client asrkit.js
"""
