#include "launcher/config/safe_substitute.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace ddprun {
namespace {

// The name at the beginning of `text`; may be empty.
absl::string_view NameAt(absl::string_view text) {
  const auto in_name = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
  if (text.empty() || absl::ascii_isdigit(text[0])) return "";
  return text.substr(0, std::find_if_not(text.begin(), text.end(), in_name) - text.begin());
}

}  // namespace

std::string SafeSubstitute(absl::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  while (!text.empty()) {
    const size_t dollar = std::min(text.find('$'), text.size());
    out.append(text.data(), dollar);
    text.remove_prefix(dollar);
    if (text.empty()) break;
    if (text.substr(0, 2) == "$$") {
      out += '$';
      text.remove_prefix(2);
      continue;
    }
    const bool braced = text.substr(0, 2) == "${";
    const absl::string_view name = NameAt(text.substr(braced ? 2 : 1));
    const size_t size = name.size() + (braced ? 3 : 1);
    const bool well_formed = !braced || text.substr(size - 1, 1) == "}";
    const auto value = well_formed ? values.find(std::string(name)) : values.end();
    if (value != values.end())
      out += value->second;
    else
      out += '$';
    text.remove_prefix(value != values.end() ? size : 1);
  }
  return out;
}

}  // namespace ddprun
