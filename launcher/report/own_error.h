// The launcher's own TORCHELASTIC_ERROR_FILE, from which its parent learns why it ended. As in torchrun, it
// is the root cause's error file or the launcher's own error in the same format.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/cli/exit_code.h"
#include "launcher/report/failure_record.h"

namespace ddprun {

class OwnErrorFile {
 public:
  // `path` empty: no file is written. `say` receives a message if an existing file is overwritten, or if the
  // file cannot be written.
  OwnErrorFile(std::string path, std::function<void(const std::string&)> say)
      : path_(std::move(path)), say_(std::move(say)) {}

  // Copies the error file of the root cause. Writes nothing if the worker left none, as torchrun.
  void LeaveCause(const FailureRecord& cause) const;
  // REQUIRES: `reason` is a failure.
  void LeaveReason(EndReason reason, absl::string_view why, int64_t unix_seconds) const;
  // Writes torchrun's text for a signal to the launcher.
  void LeaveSignal(int signo, int64_t unix_seconds) const;

 private:
  // `text`: "RendezvousTimeoutError: only 1 of 2 nodes joined".
  void Leave(const std::string& text, int64_t unix_seconds) const;
  void WarnIfExists() const;

  const std::string path_;
  const std::function<void(const std::string&)> say_;
};

}  // namespace ddprun
