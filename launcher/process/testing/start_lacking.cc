// start_lacking WHAT PROGRAM [ARG...]: runs PROGRAM without /proc or without some system calls (see
// lacking.h). WHAT is "proc", "after=N" (system calls with numbers greater than N fail with ENOSYS), or
// "CALL,CALL..." (these system calls fail with EPERM). Exits with 77 if this machine does not permit this.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/process/testing/lacking.h"

namespace {

absl::Status Disable(absl::string_view what) {
  int last = 0;
  if (what == "proc") return ddprun::UnmountProc();
  if (absl::ConsumePrefix(&what, "after=") && absl::SimpleAtoi(what, &last))
    return ddprun::RefuseCallsAfter(last);
  const std::vector<std::string> calls = absl::StrSplit(what, ',');
  return ddprun::RefuseCalls(ddprun::CallNumbers(calls), EPERM);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (const absl::Status disabled = Disable(argv[1]); !disabled.ok()) {
    std::fprintf(stderr, "start_lacking: %s\n", disabled.ToString().c_str());
    return 77;
  }
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 127;
}
