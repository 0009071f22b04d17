"""A proxy that ends TLS, as a program of its own: `python tls_proxy.py FOLDER PORT` prints the port that it listens on.

The folder has its cert.pem and key.pem; what it hears goes on in the clear to PORT of this machine. As proxies usually do, it
adds the client to X-Forwarded-For and passes on what else the client says of itself.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path


async def main(folder: Path, port: int) -> None:
    """Serve until somebody ends the process."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *headers = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        chain = [h.partition(b":")[2].strip() for h in headers if h.lower().startswith(b"x-forwarded-for:")]
        rest = [h for h in headers if not h.lower().startswith(b"x-forwarded-for:")]
        way = b", ".join([*chain, writer.get_extra_info("peername")[0].encode()])
        answers, upstream = await asyncio.open_connection("127.0.0.1", port)
        upstream.write(b"\r\n".join([first, *rest, b"X-Forwarded-For: " + way, b"\r\n"]))
        await asyncio.gather(pump(reader, upstream), pump(answers, writer))

    server = await asyncio.start_server(carry, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Everything that comes out of one goes into the other, until one of them ends."""
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
