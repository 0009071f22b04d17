"""Sign-in with OpenID Connect: authorization code flow with PKCE, at the one provider that the owner of the server names.

`flow` binds a sign-in to the browser that began it, `provider` asks the provider, `id_token` checks what it says, and
`settings` gives roles by rules. Accounts and sessions are those of `whet_live.server.access`. Nothing here is imported while
no provider is named.
"""

from __future__ import annotations
