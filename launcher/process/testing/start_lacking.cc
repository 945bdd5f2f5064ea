// start_lacking WHAT PROGRAM...: runs PROGRAM without /proc or some system calls (see lacking.h). WHAT is
// "proc", "after=N" (no system calls with numbers greater than N), or "CALL,CALL..." (these system calls fail
// with EPERM).
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

absl::Status Take(absl::string_view what) {
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
  if (const absl::Status taken = Take(argv[1]); !taken.ok()) {
    std::fprintf(stderr, "start_lacking: %s\n", taken.ToString().c_str());
    return 77;
  }
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 127;
}
