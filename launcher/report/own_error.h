// The launcher's own TORCHELASTIC_ERROR_FILE, where whoever started it looks for the reason of its end: the
// root cause's error file, or the launcher's own error in the same form, as torchrun leaves them.
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
  // `path` empty: nothing is left anywhere. `say` gets a line when a file there is overwritten, and when none
  // can be written.
  OwnErrorFile(std::string path, std::function<void(const std::string&)> say)
      : path_(std::move(path)), say_(std::move(say)) {}

  // Nothing if the worker has left no error file, as with torchrun.
  void LeaveCause(const FailureRecord& cause) const;
  // REQUIRES: `reason` is no good end.
  void LeaveReason(EndReason reason, absl::string_view why, int64_t unix_seconds) const;
  // A signal to the launcher, in torchrun's words.
  void LeaveSignal(int signo, int64_t unix_seconds) const;

 private:
  // `text`: "RendezvousTimeoutError: only 1 of 2 nodes came".
  void Leave(const std::string& text, int64_t unix_seconds) const;
  void WarnOfOldOne() const;

  const std::string path_;
  const std::function<void(const std::string&)> say_;
};

}  // namespace ddprun
