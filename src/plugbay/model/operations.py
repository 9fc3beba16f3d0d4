"""What can be asked across a link. Two closed unions, told apart by direction.

`PluginOp`: the host asks the plugin. `HostOp`: the plugin asks the host. A machine says which of them its contract can
carry (`SUPPORTS`); everything else in the host is written against these, never against a contract's method names.
Fields called `input`, `event`, `message`, `request`, `records`, `query` and `payload` hold one JSON value as the
machine's codec treats it: raw bytes or Python values in the host, Python values in a plugin. A field called `data` or
`body` holds plain bytes, whatever form they take on the wire.
"""

from __future__ import annotations

from plugbay.model.host_ops import (
    AskUser,
    ChangeResource,
    CompleteChat,
    DeleteStored,
    FetchUrl,
    GetSnapshot,
    GetStored,
    ListRoots,
    ListStored,
    OfferExports,
    Publish,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    RecallMemory,
    SetStored,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.model.plugin_ops import (
    CallMethod,
    Chat,
    CheckHealth,
    Compact,
    CompleteArgument,
    DeleteVectors,
    DeliverEvent,
    DeliverSnapshot,
    DispatchCli,
    GetPrompt,
    InvokeAction,
    InvokeTool,
    PerformAction,
    PressKey,
    ReadResource,
    Render,
    RunHarness,
    RunHook,
    SearchVectors,
    SendOutbound,
    SetLogLevel,
    Shutdown,
    StartChannel,
    StopChannel,
    UpsertVectors,
    UseMouse,
    WatchResource,
)

__all__ = [
    "AskUser",
    "CallMethod",
    "ChangeResource",
    "Chat",
    "CheckHealth",
    "Compact",
    "CompleteArgument",
    "CompleteChat",
    "DeleteStored",
    "DeleteVectors",
    "DeliverEvent",
    "DeliverSnapshot",
    "DispatchCli",
    "FetchUrl",
    "GetPrompt",
    "GetSnapshot",
    "GetStored",
    "InvokeAction",
    "InvokeTool",
    "ListRoots",
    "ListStored",
    "OfferExports",
    "PerformAction",
    "PressKey",
    "Publish",
    "PublishSnapshot",
    "ReadFile",
    "ReadFolder",
    "ReadResource",
    "RecallMemory",
    "Render",
    "RunHarness",
    "RunHook",
    "SearchVectors",
    "SendOutbound",
    "SetLogLevel",
    "SetStored",
    "Shutdown",
    "StartChannel",
    "StopChannel",
    "SubscribeSnapshot",
    "UpsertVectors",
    "UseMouse",
    "WatchResource",
    "WriteLog",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    PluginOp = (
        InvokeTool
        | DeliverEvent
        | RunHook
        | CallMethod
        | Compact
        | RunHarness
        | CheckHealth
        | StartChannel
        | StopChannel
        | SendOutbound
        | Chat
        | UpsertVectors
        | SearchVectors
        | DeleteVectors
        | Render
        | PressKey
        | UseMouse
        | PerformAction
        | DispatchCli
        | DeliverSnapshot
        | InvokeAction
        | Shutdown
        | ReadResource
        | GetPrompt
        | CompleteArgument
        | WatchResource
        | SetLogLevel
    )
    HostOp = (
        WriteLog
        | Publish
        | RecallMemory
        | CompleteChat
        | GetStored
        | SetStored
        | DeleteStored
        | ListStored
        | GetSnapshot
        | PublishSnapshot
        | SubscribeSnapshot
        | InvokeAction
        | ReadFolder
        | ReadFile
        | FetchUrl
        | OfferExports
        | ChangeResource
        | AskUser
        | ListRoots
    )
    Operation = PluginOp | HostOp
