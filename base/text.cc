#include "base/text.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string Counted(int64_t n, absl::string_view thing) {
  return absl::StrCat(n, " ", thing, n == 1 ? "" : "s");
}

std::string InSeconds(Duration d) {
  return d < seconds(1) ? absl::StrCat(d / milliseconds(1), " ms") : absl::StrCat(d / seconds(1), " s");
}

std::string InLargestUnits(Duration d) {
  const int64_t ms = std::max<int64_t>(std::chrono::duration_cast<milliseconds>(d).count(), 0);
  const int64_t s = ms / 1000, min = s / 60, h = min / 60;
  if (ms < 1000) return absl::StrCat(ms, " ms");
  if (s < 60) return absl::StrCat(s, ".", ms / 100 % 10, " s");
  if (min < 60) return absl::StrCat(min, " min ", s % 60, " s");
  if (h < 48) return absl::StrCat(h, " h ", min % 60, " min");
  return absl::StrCat(h / 24, " d ", h % 24, " h");
}

}  // namespace ddprun
