"""From the server's options to what the engine needs: its limits, and its accounts."""

from slipstream.engine.engine import Engine
from slipstream.engine.protocol.options import (
    AccountConnectionLimits,
    AccountLimits,
    ConnectionLimits,
    EngineOptions,
)
from slipstream.engine.session.account import Account
from slipstream.engine.sharing.service_imports import ServiceTerms, import_services
from slipstream.engine.sharing.stream_imports import import_streams
from slipstream.server.banner import disk_for_streams, memory_for_streams
from slipstream.server.options import AccountOptions, MappingOptions, ServerOptions
from slipstream.server.sharing import (
    RESPONSE_THRESHOLD,
    SERVICE,
    SINGLETON,
    STREAM,
    ImportOptions,
    find_export,
)
from slipstream.wire.transforms import Mappings


def engine_options(options: ServerOptions) -> EngineOptions:
    """The engine's part."""
    js = options.jetstream
    tls = options.tls
    return EngineOptions(
        server_name=options.server_name,
        host=options.host,
        port=max(options.port, 0),
        client_advertise=options.client_advertise,
        auth_timeout=options.auth_timeout,
        auth_required=is_auth_required(options),
        tls_required=tls is not None and not options.allow_non_tls,
        tls_available=tls is not None and options.allow_non_tls,
        tls_verify=tls is not None and tls.verify,
        jetstream=js.enabled,
        domain=js.domain,
        server_tags=[tag.lower() for tag in options.server_tags],
        strict=js.strict,
        sync_always=js.sync_always,
        sync_interval=0 if js.sync_always else js.sync_interval,
        ceilings=js,
        reservable_memory=memory_for_streams(options) if js.enabled else -1,
        reservable_storage=disk_for_streams(options) if js.enabled else -1,
        scrub_rate=js.scrub,
        jetstream_limits=js.limits,
        **{name: getattr(options.limits, name) for name in ConnectionLimits.__struct_fields__},
    )


def is_auth_required(options: ServerOptions) -> bool:
    """Whether a client has to say who it is. Where only the system account has users, others are
    free in the default account."""
    if options.no_auth_user or not options.has_users:
        return False
    named = [name for name, account in options.accounts.items() if account.users]
    return options.authorization.is_configured or named != [options.system_account]


def prepare_accounts(engine: Engine, options: ServerOptions) -> None:
    """Create the accounts that are configured, or change those that are there already."""
    # Where there are other accounts, these alone have JetStream, each as its block says.
    others = set(options.accounts) - {options.system_account}
    engine.default_account.limits = AccountLimits()
    if others:
        engine.default_account.limits.jetstream = None
    _map_subjects(engine, engine.default_account, options.mappings)
    if options.system_account != engine.system_account.name:
        engine.rename_system_account(options.system_account)
    for name, wanted in options.accounts.items():
        limits = _limits(wanted)
        if name == options.system_account:
            account = engine.system_account
        elif name in engine.accounts:
            account = engine.accounts[name]
            account.limits = limits
            if account.jetstream is not None:
                account.jetstream.set_limits(limits.jetstream)
        else:
            account = engine.add_account(name, limits)
        _map_subjects(engine, account, wanted.mappings)
    _share(engine, options)


def _share(engine: Engine, options: ServerOptions) -> None:
    """Have each account import what it is to, and no more."""
    for name, account in engine.accounts.items():
        wanted = options.accounts.get(name)
        imports = wanted.imports if wanted is not None else []
        streams = [
            (engine.accounts[each.account], each.subject, each.local, each.allow_trace)
            for each in imports
            if each.kind == STREAM
        ]
        services = [
            (engine.accounts[each.account], each.subject, each.local, _terms(name, each, options))
            for each in imports
            if each.kind == SERVICE
        ]
        import_streams(account, streams)
        import_services(account, services)


def _terms(name: str, wanted: ImportOptions, options: ServerOptions) -> ServiceTerms:
    export = find_export(options.accounts[wanted.account].exports, wanted, name)
    if export is None:
        return ServiceTerms(share=wanted.share)  # refused by `validate`
    return ServiceTerms(
        is_single=export.response_type == SINGLETON,
        response_threshold=export.response_threshold or RESPONSE_THRESHOLD,
        share=wanted.share,
        allow_trace=export.allow_trace,
    )


def _limits(wanted: AccountOptions) -> AccountLimits:
    names = AccountConnectionLimits.__struct_fields__
    return AccountLimits(
        jetstream=wanted.jetstream, **{name: getattr(wanted, name) for name in names}
    )


def _map_subjects(engine: Engine, account: Account, mappings: list[MappingOptions]) -> None:
    if not mappings:
        account.mappings = None
        return
    account.mappings = Mappings(engine.random)
    for mapping in mappings:
        destinations = [(d.subject, d.weight) for d in mapping.destinations]
        account.mappings.add(mapping.source, destinations)
