// Writes the launcher's own TORCHELASTIC_ERROR_FILE, from which the launcher's parent process can read why
// the launcher ended. As in torchrun, the file is a copy of the root cause's error file, or contains the
// launcher's own error in the same format.
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
  // If `path` is empty, no file is written. `say` is called with a message if an existing file is
  // overwritten, or if the file cannot be written.
  OwnErrorFile(std::string path, std::function<void(const std::string&)> say)
      : path_(std::move(path)), say_(std::move(say)) {}

  // Copies the error file of the root cause. Like torchrun, writes nothing if the worker wrote no error file.
  void LeaveCause(const FailureRecord& cause) const;
  // Writes `why` with the name of torchrun's exception for `reason`.
  //   REQUIRES: `reason` is a failure.
  void LeaveReason(EndReason reason, absl::string_view why, int64_t unix_seconds) const;
  // Writes the text that torchrun writes when it receives signal `signo`.
  void LeaveSignal(int signo, int64_t unix_seconds) const;

 private:
  // `text` is, for example, "RendezvousTimeoutError: only 1 of 2 nodes joined".
  void Leave(const std::string& text, int64_t unix_seconds) const;
  void WarnIfExists() const;

  const std::string path_;
  const std::function<void(const std::string&)> say_;
};

}  // namespace ddprun
