#include "worker_sdk/comm/nccl/agreement.h"

#include <algorithm>
#include <array>
#include <string>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Whether a rank can go on.
struct Standing {
  int32_t code = 0;
  std::array<char, 252> text = {};
};

struct Version {
  int32_t number = 0;
  std::array<char, 60> rank = {};  // HostGroupInterface::Name
};

// Copies as much of the text as fits, with a NUL.
template <size_t kSize>
void Copy(const std::string& text, std::array<char, kSize>* to) {
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to->begin());
}

}  // namespace

Status Agree(HostGroupInterface& host, const Status& mine, TimePoint deadline) {
  Standing own{.code = static_cast<int32_t>(mine.code())};
  Copy(StrCat(host.Name(), ": ", mine.message()), &own.text);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Standing> all, Gather(host, own, deadline));
  for (const Standing& standing : all) {
    if (standing.code != 0) return Status(static_cast<StatusCode>(standing.code), standing.text.data());
  }
  return OkStatus();
}

Status AgreeOnVersion(HostGroupInterface& host, const NcclLibrary& library, TimePoint deadline) {
  const StatusOr<int> number = NcclVersionOf(library);
  DDPRUN_RETURN_IF_ERROR(Agree(host, number.ok() ? OkStatus() : number.status(), deadline));
  Version own{.number = *number};
  Copy(host.Name(), &own.rank);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Version> all, Gather(host, own, deadline));
  for (const Version& other : all) {
    if (other.number == all[0].number) continue;
    return FailedPreconditionError(StrCat(
        "the ranks have different versions of NCCL: ", all[0].rank.data(), " has ",
        NcclVersionText(all[0].number), ", ", other.rank.data(), " has ", NcclVersionText(other.number),
        ": install one version of libnccl.so.2 on all nodes, or set LD_LIBRARY_PATH"));
  }
  return OkStatus();
}

}  // namespace ddprun
