"""A server of a recogniser: many callers in one process, by protocols that clients have already.

server.py          what is served: desks, limits, figures
calls.py           sessions in threads of their own, used from an event loop
app.py             the addresses, and who may use them
stream.py          asrkit's own protocol, with messages.py; calls outlive their connections
client.py          its client, which comes back when the connection is lost
vosk.py            Vosk's protocol
transcriptions.py  OpenAI's upload of a file
decoding.py        uploads decoded in processes of their own, each a decoder.py
openapi.py         the description of what is not a WebSocket
sockets.py         what the WebSockets share
page/              what a browser gets at /
"""
