#include "launcher/progress/flight_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

// Returns why nothing was written to the pipe; empty if it was.
std::string Trigger(const std::string& pipe) {
  const UniqueFd fd(open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!fd && errno == ENXIO) return "no process reads it";
  if (!fd) return std::strerror(errno);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || !S_ISFIFO(status.st_mode)) return "it is no pipe";
  // A full pipe has been written to before.
  if (write(fd.get(), "1\n", 2) != 2 && errno != EAGAIN) return std::strerror(errno);
  return "";
}

// The names of the files; a later release has another name for the variable.
std::string Files() {
  for (const char* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}) {
    if (const char* const stem = std::getenv(name)) return absl::StrCat(" to ", stem, "RANK");
  }
  return "";
}

}  // namespace

std::string AskFlightRecorders(const std::vector<Rank>& ranks) {
  const char* const stem = std::getenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  if (stem == nullptr || *stem == '\0') return "";
  bool asked = false;
  std::string failed;
  for (const Rank rank : ranks) {
    const std::string why = Trigger(absl::StrCat(stem, rank.value(), ".pipe"));
    asked = asked || why.empty();
    if (!why.empty() && failed.empty()) failed = why;
  }
  if (!failed.empty()) {
    failed = absl::StrCat(asked ? "some of them" : "PyTorch's flight recorders", " cannot be asked: ", stem,
                          "RANK.pipe: ", failed,
                          "; they need NCCL, and TORCH_NCCL_TRACE_BUFFER_SIZE or TORCH_FR_BUFFER_SIZE");
  }
  if (!asked) return failed;
  return absl::StrCat("PyTorch's flight recorders write the last operations of the ranks", Files(),
                      failed.empty() ? "" : "; ", failed);
}

}  // namespace ddprun
