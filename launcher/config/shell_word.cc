#include "launcher/config/shell_word.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun {

std::string ShellWord(absl::string_view word) {
  const auto plain = [](char c) {
    return absl::ascii_isalnum(c) || absl::string_view("_-./:=,+@%").find(c) != absl::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace ddprun
