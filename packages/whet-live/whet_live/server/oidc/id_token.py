"""Whether an ID token is what it must be: signed by the provider with a public key of now, for this server, for this sign-in, in
time.

PyJWT checks signature, issuer and audience. Times are held to the clock that all servers share, which PyJWT cannot ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import Any

import jwt

from whet_live.database import iso
from whet_live.server.responses import SignInRefused

FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key by the first letters of the algorithm."""
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures with a public key. `none` is no signature, and HS256 could be made by whoever knows the client's secret, or by
anybody where a public key is taken for a secret."""
LEEWAY = 60
"""Seconds by which the clocks of provider and server may differ."""
MOST_KEYS = 20
_NEEDED = ["iss", "sub", "aud", "exp", "iat", "nonce"]
_LONGEST_SUBJECT = 255


def check_id_token(
    token: str, keys: object, *, issuer: str, client_id: str, nonce: str, moment: int
) -> dict[str, Any]:
    """The claims of the token, at that moment in microseconds. `keys` is the provider's JSON Web Key Set as it was read.

    Raises SignInRefused with the reason."""
    claims = _check_signature(token, keys, issuer, client_id)
    audience, party = claims["aud"], claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, client_id):
        raise _refuse_audience()
    sent = str(claims["nonce"]).encode("utf-8", "replace")
    if not compare_digest(sent, nonce.encode()):
        raise SignInRefused(
            "nonce", "The identity provider answered for another sign-in (nonce). Sign in again."
        )
    subject = claims["sub"]
    if not (0 < len(subject) <= _LONGEST_SUBJECT and subject.isascii() and subject.isprintable()):
        raise SignInRefused("subject", "The identity provider names a person by no usable subject (sub).")
    _check_times(claims, moment)
    return claims


def _check_signature(token: str, keys: object, issuer: str, client_id: str) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
    except jwt.InvalidTokenError:
        raise SignInRefused("malformed", "The identity provider sent an ID token that is none.") from None
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise SignInRefused(
            "algorithm",
            f'The ID token is signed with "{str(algorithm)[:20]}". This server takes signatures with a public key only '
            f"({', '.join(sorted(ALGORITHMS))}): an admin sets that at the provider.",
        )
    for key in _fitting_keys(keys, algorithm, header.get("kid")):
        try:
            return jwt.decode(
                token,
                jwt.PyJWK(key, algorithm),
                algorithms=[algorithm],
                audience=client_id,
                issuer=issuer,
                options={
                    "require": _NEEDED,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "enforce_minimum_key_length": True,
                },
            )
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError, jwt.PyJWKError, ValueError):
            continue
        except jwt.InvalidTokenError as error:
            raise _as_refusal(error) from None
    raise SignInRefused(
        "signature",
        "The signature of the ID token fits no key that the identity provider publishes (jwks_uri).",
    )


def _fitting_keys(keys: object, algorithm: str, name: object) -> list[dict[str, Any]]:
    """The public keys that may have made this signature: the one of that name (`kid`), or all where the token names none."""
    listed = keys.get("keys") if isinstance(keys, Mapping) else None
    fitting = [
        key
        for key in (listed if isinstance(listed, list) else ())
        if isinstance(key, dict)
        and key.get("kty") == FAMILIES[algorithm[:2]]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (name is None or key.get("kid") == name)
    ]
    return fitting[:MOST_KEYS]


def _as_refusal(error: jwt.InvalidTokenError) -> SignInRefused:
    if isinstance(error, jwt.InvalidAudienceError):
        return _refuse_audience()
    if isinstance(error, jwt.InvalidIssuerError):
        return SignInRefused("issuer", "The ID token is of another issuer than --oidc-issuer.")
    if isinstance(error, jwt.MissingRequiredClaimError):
        return SignInRefused("claim", f"The ID token lacks the claim {error.claim}.")
    return SignInRefused("malformed", f"The ID token cannot be used ({type(error).__name__}).")


def _refuse_audience() -> SignInRefused:
    return SignInRefused("audience", "The ID token is for another client than --oidc-client-id.")


def _check_times(claims: Mapping[str, Any], moment: int) -> None:
    seconds = moment / 1e6
    times: dict[str, float] = {}
    for name in ("exp", "iat", "nbf"):
        value = claims.get(name, 0 if name == "nbf" else None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SignInRefused("malformed", f"The ID token cannot be used: {name} is no number.")
        times[name] = value
    clock = f"This server's clock says {iso(moment)[:19]}Z. Sign in again; if that does not help, an admin compares the clocks."
    if not seconds < times["exp"] + LEEWAY:
        raise SignInRefused("expired", f"The ID token had ended before it arrived. {clock}")
    if not all(times[name] <= seconds + LEEWAY for name in ("iat", "nbf")):
        raise SignInRefused("early", f"The ID token is from the future. {clock}")
