"""The providers that serve models by OpenAI's protocol: where, with which key, and which variables move them.

A new provider is one line in `PROVIDERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from whet._util.variables import variable

AZURE = "azure"


@dataclass(frozen=True)
class Provider:
    """The base URL of a provider, and the headers that a request to it must carry.

    `base_url`: its documented address, at the usual port for a server on this machine; empty where every customer has an
    address of their own. `keys`: environment variables that may hold the key, `urls` those that may hold another base URL;
    of each the first that is set counts.
    """

    base_url: str
    keys: tuple[str, ...]
    urls: tuple[str, ...]

    @property
    def host(self) -> str:
        """The documented host; empty without one."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def local(self) -> bool:
        """Whether it is a server that usually runs on this machine."""
        return self.host == "localhost"

    def find_key(self) -> tuple[str, str]:
        """Name and value of the variable that holds the key; the first name and an empty text where none is set."""
        values = ((name, value) for name in self.keys if (value := (variable(name) or "").strip()))
        return next(values, (self.keys[0], ""))

    def find_base_url(self) -> tuple[str, str]:
        """Name and value of the variable that holds the base URL, as a URL; two empty texts where none is set."""
        values = ((name, value) for name in self.urls if (value := (variable(name) or "").strip()))
        name, value = next(values, ("", ""))
        return name, self._complete(value) if value else ""

    def _complete(self, text: str) -> str:
        """A host, a port or a URL without a path, as such variables hold them (`OLLAMA_HOST=0.0.0.0:11434`), as a base URL."""
        from yarl import URL

        if not self.base_url or self.host == "api.openai.com":
            return text
        usual = URL(self.base_url)
        if "://" not in text:
            host = f"localhost{text}" if text.startswith(":") else text
            text = f"{'http' if self.local else usual.scheme}://{host}"
        try:
            url = URL(text)
            if url.host in ("0.0.0.0", "::"):
                url = url.with_host("localhost")
            if self.local and url.scheme == "http" and url.explicit_port is None:
                url = url.with_port(usual.port)
            return str(url if url.path.strip("/") else url.with_path(usual.path).with_query(url.query))
        except ValueError:
            return text


def _provider(
    name: str, base_url: str, keys: tuple[str, ...] = (), urls: tuple[str, ...] = ()
) -> tuple[str, Provider]:
    own = name.upper()
    return name, Provider(base_url, (f"{own}_API_KEY", *keys), (*urls, f"{own}_BASE_URL"))


PROVIDERS: Mapping[str, Provider] = dict(
    (
        _provider("openai", "https://api.openai.com/v1"),
        _provider("anthropic", "https://api.anthropic.com/v1"),
        _provider("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", ("GOOGLE_API_KEY",)),
        _provider("groq", "https://api.groq.com/openai/v1"),
        _provider("mistral", "https://api.mistral.ai/v1"),
        _provider("deepseek", "https://api.deepseek.com/v1"),
        _provider("openrouter", "https://openrouter.ai/api/v1"),
        _provider("together", "https://api.together.xyz/v1", ("TOGETHERAI_API_KEY",)),
        _provider("xai", "https://api.x.ai/v1"),
        _provider("fireworks", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_AI_API_KEY",)),
        _provider("cerebras", "https://api.cerebras.ai/v1"),
        _provider("nvidia", "https://integrate.api.nvidia.com/v1", ("NVIDIA_NIM_API_KEY",)),
        _provider("cohere", "https://api.cohere.ai/compatibility/v1", ("CO_API_KEY",)),
        _provider("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
        _provider("deepinfra", "https://api.deepinfra.com/v1/openai", ("DEEPINFRA_TOKEN",)),
        _provider("github", "https://models.github.ai/inference", ("GITHUB_TOKEN",)),
        _provider("huggingface", "https://router.huggingface.co/v1", ("HF_TOKEN",)),
        _provider("hyperbolic", "https://api.hyperbolic.xyz/v1"),
        _provider("minimax", "https://api.minimax.io/v1"),
        _provider("moonshot", "https://api.moonshot.ai/v1"),
        _provider("nebius", "https://api.studio.nebius.com/v1"),
        _provider("novita", "https://api.novita.ai/v3/openai"),
        _provider("perplexity", "https://api.perplexity.ai"),
        _provider("sambanova", "https://api.sambanova.ai/v1"),
        _provider("vercel", "https://ai-gateway.vercel.sh/v1", ("AI_GATEWAY_API_KEY",)),
        _provider("zai", "https://api.z.ai/api/paas/v4"),
        _provider("ollama", "http://localhost:11434/v1", (), ("OLLAMA_HOST", "OLLAMA_API_BASE")),
        _provider("vllm", "http://localhost:8000/v1", (), ("HOSTED_VLLM_API_BASE",)),
        _provider("sglang", "http://localhost:30000/v1"),
        _provider("llamacpp", "http://localhost:8080/v1", ("LLAMA_API_KEY",)),
        _provider("lmstudio", "http://localhost:1234/v1", ("LM_STUDIO_API_KEY",), ("LM_STUDIO_API_BASE",)),
        _provider("litellm_proxy", "http://localhost:4000/v1", (), ("LITELLM_PROXY_API_BASE",)),
        (
            AZURE,
            Provider(
                "", ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"), ("AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE")
            ),
        ),
    )
)
"""Every provider by the word before the slash of its addresses."""

OPENAI = PROVIDERS["openai"]


def owners_of(host: str) -> list[Provider]:
    """Providers that document this host as theirs."""
    return [provider for provider in PROVIDERS.values() if provider.host == host]
