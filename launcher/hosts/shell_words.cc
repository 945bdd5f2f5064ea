#include "launcher/hosts/shell_words.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun {

absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;  // the quote that is open; 0: none
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && absl::ascii_isspace(static_cast<unsigned char>(c))) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'') {
      if (i + 1 == text.size()) return absl::InvalidArgumentError("a backslash at the end");
      const char next = text[i + 1];
      if (quote == 0 || absl::StrContains("\"\\$`", next)) {
        words.back() += next;
        ++i;
      } else {
        words.back() += c;
      }
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return absl::InvalidArgumentError(absl::StrCat("a ", std::string(1, quote), " is missing"));
  return words;
}

}  // namespace ddprun
