"""From options to the engine's accounts."""

from slipstream.engine.account import Account
from slipstream.engine.engine import DEFAULT_ACCOUNT, Engine
from slipstream.engine.options import AccountLimits
from slipstream.errors import ConfigError
from slipstream.server.options import AccountOptions, ServerOptions
from slipstream.wire.transforms import Mappings


def prepare_accounts(engine: Engine, options: ServerOptions) -> None:
    """Create the accounts that are configured. Raises `ConfigError`."""
    _map_subjects(engine, engine.default_account, options.mappings)
    for name, wanted in options.accounts.items():
        if name == DEFAULT_ACCOUNT:
            raise ConfigError("$G is the default account and can not be configured")
        if name == options.system_account:
            account = engine.system_account
            if name != account.name:
                del engine.accounts[account.name]
                account.name = name
                engine.accounts[name] = account
        else:
            account = engine.add_account(name, _limits(wanted))
        _map_subjects(engine, account, wanted.mappings)


def _limits(wanted: AccountOptions) -> AccountLimits:
    limits = AccountLimits(
        max_connections=wanted.max_connections,
        max_subscriptions=wanted.max_subscriptions,
        max_payload=wanted.max_payload,
        jetstream=wanted.jetstream,
    )
    for name, value in wanted.jetstream_limits.items():
        setattr(limits, name, value)
    return limits


def _map_subjects(
    engine: Engine, account: Account, mappings: dict[str, list[tuple[str, int]]]
) -> None:
    if not mappings:
        return
    account.mappings = Mappings(engine.random)
    for source, destinations in mappings.items():
        account.mappings.add(source, destinations)
