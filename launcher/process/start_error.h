// Why a worker could not be started, in words that say what to do.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/process/warden_protocol.h"

namespace ddprun {

// `error` is the errno of `stage`. Looks at the files to tell causes apart that share an errno (a missing
// program and a missing interpreter of it).
//   Returns: kNotFound, kPermissionDenied, kInvalidArgument (the program or its arguments cannot run here),
//            kResourceExhausted (processes, memory, descriptors), kCancelled (everything is being killed),
//            kInternal otherwise.
absl::Status StartError(warden_protocol::StartStage stage, int error, absl::string_view program,
                        absl::string_view cwd);

}  // namespace ddprun
