#include "base/text.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>

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

std::string InThreeDigits(Duration d) {
  const bool long_time = d >= seconds(10);
  const double value = std::chrono::duration<double>(d).count() * (long_time ? 1 : 1000);
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s",
                value < 1     ? 3
                : value < 10  ? 2
                : value < 100 ? 1
                              : 0,
                value, long_time ? "s" : "ms");
  return text;
}

std::string InBytes(uint64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  if (bytes == 1) return "1 byte";
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace ddprun
