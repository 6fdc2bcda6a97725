"""`asrkit serve` as an application of Ray Serve, which starts its processes on many machines.

    from ray import serve
    from asrkit.commands.ray import application

    store = ("--redis", "redis://host", "--state-key-file", "key")
    app = application("--model", "MODEL", *store, "--token-file", "token")
    serve.run(app, route_prefix="/")

Ray's proxies have the address and TLS, and its controller replaces replicas that fail. A caller of
a lost replica resumes its call with another one, from the store that all replicas share.
"""

from typing import TYPE_CHECKING, Any

from asrkit.cli.options import token_in
from asrkit.commands.serve import (
    arguments_of,
    check_origins,
    recognizers,
    server_of,
    set_threads,
    store_of,
)
from asrkit.errors import UserError
from asrkit.extras import need

if TYPE_CHECKING:
    from ray.serve import Application
    from starlette.types import ASGIApp

BESIDE = 50  # further requests of a replica at a time, such as health checks and uploads
# Options of `asrkit serve` without effect here.
OF_RAY = "host", "port", "workers", "wyoming", "trust_proxy"


def application(*arguments: str, **deployment: Any) -> "Application":
    """Return the application that options of `asrkit serve` describe.

    Args:
        arguments: options of `asrkit serve`, with --redis, or a --state-dir on a single machine.
        deployment: options of Ray's deployment, such as num_replicas and ray_actor_options.
    """
    need("ray", "starlette", "websockets", "python_multipart", "prometheus_client")
    from ray import serve

    from asrkit.serve import logs
    from asrkit.serve.app import app_of

    parser = arguments_of()
    options = parser.parse_intermixed_args([*arguments])
    for name in OF_RAY:
        if getattr(options, name) != parser.get_default(name):
            raise UserError(f"--{name.replace('_', '-')} has no effect in Ray Serve: leave it out")
    if options.redis is None and options.state_dir is None:
        raise UserError(
            "a caller of a lost replica comes back to another one: give --redis, or a --state-dir "
            "if all replicas are on one machine"
        )
    token = token_in(options.token_file)
    if token is None and not options.insecure:
        raise UserError(
            "Ray's proxies may be reached from elsewhere: give --token-file, or --insecure if "
            "everybody who can reach them may use the server"
        )
    check_origins(options, token)
    if options.state_dir is not None:  # replicas have folders of their own
        options.state_dir = options.state_dir.absolute()
    store_of(options)

    def replica() -> "ASGIApp":
        set_threads()
        logs.set_up(options.log)
        return app_of(server_of(options, recognizers(options)))

    most = {"max_ongoing_requests": options.streams + BESIDE}  # a call is one request
    return serve.deployment(**(most | deployment))(serve.ingress(replica)()).bind()
