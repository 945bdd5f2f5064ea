#include "launcher/gpu/gpu_errors.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxLines = 5;
// Messages that are later than the failure by more than this are not evidence of its cause.
constexpr Duration kLatest = seconds(1);

bool Concerns(const SeenXid& seen, const FailedWorker& worker) {
  if (seen.at < worker.started || seen.at > worker.failed + kLatest) return false;
  if (seen.worker) return seen.worker == worker.local_rank;
  if (seen.xid.of_switch) return !worker.gpus.empty();
  return std::find(worker.gpus.begin(), worker.gpus.end(), seen.xid.address) != worker.gpus.end();
}

std::string Device(const SeenXid& seen, const FailedWorker& worker) {
  const std::string address = ToString(seen.xid.address);
  if (seen.xid.of_switch) return absl::StrCat("NVSwitch ", address);
  const bool one_of_several = !seen.worker && worker.gpus.size() > 1;
  return absl::StrCat(
      "GPU ", address,
      one_of_several ? absl::StrCat(", one of the ", worker.gpus.size(), " that this worker can use,") : "");
}

// Whether the driver's text says no more than the meaning. A longer text may contain what matters, such as the
// action in "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)".
bool Repeats(absl::string_view text, absl::string_view meaning) {
  absl::ConsumeSuffix(&text, ".");
  return absl::EqualsIgnoreCase(text, meaning);
}

// The process that the message names; empty if it names none.
std::string Process(const SeenXid& seen) {
  const Xid& xid = seen.xid;
  if (!seen.has_our_pids || !xid.pid) {
    return xid.process.empty() ? "" : absl::StrCat(", for a process named ", xid.process);
  }
  return absl::StrCat(", for process ", *xid.pid,
                      xid.process.empty() ? "" : absl::StrCat(" (", xid.process, ")"),
                      seen.worker ? "" : ", which is not known to belong to a worker");
}

std::string When(const SeenXid& seen, const FailedWorker& worker) {
  const TimePoint at = seen.at;
  return absl::StrCat(seen.count > 1 ? absl::StrCat(" ", seen.count, " times, first") : "", " ",
                      at <= worker.failed ? InLargestUnits(worker.failed - at) + " before the failure"
                                          : InLargestUnits(at - worker.failed) + " after the failure");
}

std::string Line(const SeenXid& seen, const FailedWorker& worker) {
  const Xid& xid = seen.xid;
  const XidMeaning meaning = MeaningOf(xid);
  std::string line = absl::StrCat(Device(seen, worker), " reported ", xid.of_switch ? "SXid " : "Xid ",
                                  xid.code, meaning.what.empty() ? "" : absl::StrCat(" (", meaning.what, ")"),
                                  When(seen, worker), Process(seen));
  if (meaning.is_consequence) {
    absl::StrAppend(&line, xid.caused_by > 0 ? absl::StrCat("; a consequence of Xid ", xid.caused_by)
                                             : "; usually a consequence of the end of the program");
  }
  if (!meaning.remedy.empty()) absl::StrAppend(&line, ". Remedy: ", meaning.remedy);
  if (!xid.text.empty() && !Repeats(xid.text, meaning.what)) {
    absl::StrAppend(&line, ". The driver: ", xid.text);
  }
  return line;
}

}  // namespace

bool SameKind(const Xid& a, const Xid& b) {
  return a.address == b.address && a.of_switch == b.of_switch && a.code == b.code && a.pid == b.pid;
}

std::vector<std::string> XidEvidence(const std::vector<SeenXid>& seen, const FailedWorker& worker) {
  std::vector<SeenXid> kinds;
  for (const SeenXid& s : seen) {
    if (!Concerns(s, worker)) continue;
    const auto same =
        std::find_if(kinds.begin(), kinds.end(), [&](const SeenXid& k) { return SameKind(k.xid, s.xid); });
    if (same != kinds.end()) {
      same->count += s.count;
      continue;
    }
    if (MeaningOf(s.xid).is_consequence && !kinds.empty()) continue;
    kinds.push_back(s);
  }
  std::vector<std::string> lines;
  for (const SeenXid& kind : kinds) {
    if (lines.size() == kMaxLines) break;
    lines.push_back(Line(kind, worker));
  }
  if (kinds.size() > kMaxLines) {
    lines.back() = absl::StrCat("the driver reported ",
                                Counted(static_cast<int64_t>(kinds.size() - kMaxLines + 1), "more kind"),
                                " of GPU errors: see dmesg");
  }
  return lines;
}

std::vector<std::string> MemoryEvidence(const PciAddress& gpu, const GpuMemoryHealth& before,
                                        const GpuMemoryHealth& after) {
  std::vector<std::string> lines;
  const std::string name = absl::StrCat("GPU ", ToString(gpu));
  const uint64_t errors_before = before.uncorrected.value_or(0), errors = after.uncorrected.value_or(0);
  if (before.uncorrected && errors > errors_before) {
    lines.push_back(absl::StrCat(
        name, " has counted ", Counted(static_cast<int64_t>(errors - errors_before), "uncorrected ECC error"),
        " since the workers started. Remedy: reset the GPU (nvidia-smi -r) or reboot; if it "
        "recurs, have the GPU replaced"));
  }
  if (after.remap_failed && !before.remap_failed) {
    lines.push_back(
        absl::StrCat(name, " has no spare memory row for a bad one. Remedy: have the GPU replaced"));
  } else if (after.remap_pending && !before.remap_pending) {
    lines.push_back(
        absl::StrCat(name, " replaces a bad memory row at its next reset. Remedy: reset it (nvidia-smi -r)"));
  }
  return lines;
}

}  // namespace ddprun
