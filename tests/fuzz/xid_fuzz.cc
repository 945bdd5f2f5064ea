// Parses arbitrary bytes as the kernel's log, line by line.
//
// Invariants: no crash; texts are limited; a parsed message keeps its meaning when it is written in the
// newest form of the driver and parsed again; a code is not negative.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "launcher/gpu/xid.h"

namespace ddprun {
namespace {

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: broken invariant: %s\n", what);
  std::abort();
}

std::string Written(const Xid& xid) {
  return absl::StrCat(
      xid.of_switch ? "nvidia-nvswitch0: SXid" : "NVRM: Xid",
      " (PCI:", absl::StripSuffix(ToString(xid.address), ".0"), "): ", xid.code,
      xid.of_switch
          ? ""
          : absl::StrCat(", pid=", xid.pid ? absl::StrCat(*xid.pid) : "'<unknown>'", ", name=", xid.process),
      ", ", xid.text, xid.caused_by > 0 ? absl::StrCat(" caused by previous Xid ", xid.caused_by) : "");
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  for (const absl::string_view line : absl::StrSplit(input, '\n')) {
    const std::optional<Xid> xid = ParseXid(line);
    if (!xid) continue;
    Check(xid->code >= 0, "the code is not negative");
    Check(!xid->pid || *xid->pid > 0, "the pid is valid");
    Check(xid->text.size() <= 300 && xid->process.size() <= 64, "texts are limited");
    Check(MeaningOf(*xid).remedy.size() < 200, "the meaning is a short text");
    // These texts cannot be told from the fields before them.
    if (absl::StartsWith(xid->text, "pid=") || absl::StartsWith(xid->text, "name=") ||
        absl::StrContains(xid->text, " caused by previous Xid ")) {
      continue;
    }
    const std::optional<Xid> again = ParseXid(Written(*xid));
    Check(again.has_value(), "what was parsed can be written and parsed again");
    Check(again->address == xid->address && again->code == xid->code && again->pid == xid->pid &&
              again->caused_by == xid->caused_by && again->of_switch == xid->of_switch,
          "what was parsed keeps its meaning");
  }
  return 0;
}
