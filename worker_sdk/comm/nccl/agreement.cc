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

}  // namespace

Status Agree(HostGroupInterface& host, const Status& mine, TimePoint deadline) {
  Standing own{.code = static_cast<int32_t>(mine.code())};
  const std::string text = StrCat(host.Name(), ": ", mine.message());
  std::copy_n(text.begin(), std::min(text.size(), own.text.size() - 1), own.text.begin());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Standing> all, Gather(host, own, deadline));
  for (const Standing& standing : all) {
    if (standing.code != 0) return Status(static_cast<StatusCode>(standing.code), standing.text.data());
  }
  return OkStatus();
}

}  // namespace ddprun
