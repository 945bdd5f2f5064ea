#include "launcher/scheduler/host_list.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

constexpr size_t kMaxHosts = 1 << 20;
constexpr size_t kMaxDigits = 18;  // maximum length of a number in brackets, so that it fits in 64 bits

template <typename... Text>
absl::Status Bad(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat("list of hosts: ", text...));
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Expands the content of brackets: "08-10,7" is 08, 09, 10, 7.
absl::StatusOr<std::vector<std::string>> ExpandNumbers(absl::string_view text) {
  std::vector<std::string> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    if (ends.size() > 2 || !IsNumber(ends.front()) || !IsNumber(ends.back())) {
      return Bad("[", text, "]: expected numbers and ranges, such as [01-03,7]");
    }
    uint64_t first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || last < first) {
      return Bad(part, ": expected a range from a lower to a higher number");
    }
    if (last - first >= kMaxHosts - numbers.size()) return Bad("more than ", kMaxHosts, " hosts");
    for (uint64_t i = first; i <= last; ++i) {
      const std::string digits = absl::StrCat(i);
      const size_t width = std::max(ends.front().size(), digits.size());
      numbers.push_back(std::string(width - digits.size(), '0') + digits);
    }
  }
  return numbers;
}

// Expands one name and appends the result to `hosts`.
absl::Status ExpandName(absl::string_view name, std::vector<std::string>& hosts) {
  std::vector<std::string> begun = {""};
  for (absl::string_view rest = name; !rest.empty();) {
    const size_t open = rest.find('[');
    const absl::string_view plain = rest.substr(0, open);
    if (plain.find(']') != absl::string_view::npos) return Bad(name, ": ']' without '['");
    for (std::string& host : begun) absl::StrAppend(&host, plain);
    if (open == absl::string_view::npos) break;
    rest.remove_prefix(open + 1);
    const size_t close = rest.find(']');
    if (close == absl::string_view::npos) return Bad(name, ": '[' without ']'");
    ASSIGN_OR_RETURN(const std::vector<std::string> numbers, ExpandNumbers(rest.substr(0, close)));
    rest.remove_prefix(close + 1);
    if (begun.size() * numbers.size() > kMaxHosts - hosts.size())
      return Bad("more than ", kMaxHosts, " hosts");
    std::vector<std::string> longer;
    for (const std::string& host : begun) {
      for (const std::string& number : numbers) longer.push_back(host + number);
    }
    begun = std::move(longer);
  }
  if (name.empty()) return Bad("an empty name");
  if (hosts.size() + begun.size() > kMaxHosts) return Bad("more than ", kMaxHosts, " hosts");
  std::move(begun.begin(), begun.end(), std::back_inserter(hosts));
  return absl::OkStatus();
}

// Returns the length of the first name in `text`. A name ends at a comma outside brackets.
size_t EndOfName(absl::string_view text) {
  bool in_brackets = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') in_brackets = true;
    if (text[i] == ']') in_brackets = false;
    if (text[i] == ',' && !in_brackets) return i;
  }
  return text.size();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view text) {
  std::vector<std::string> hosts;
  for (;;) {
    const size_t end = EndOfName(text);
    RETURN_IF_ERROR(ExpandName(text.substr(0, end), hosts));
    if (end == text.size()) return hosts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace ddprun
