#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

// Returns the edit distances (insertions, deletions, substitutions, swaps of neighbours) from `a` to each
// prefix of `b`, starting with the empty prefix.
std::vector<size_t> Distances(absl::string_view a, absl::string_view b) {
  // Row i: distances from the first i characters of `a`. The recurrence needs three rows.
  std::vector<size_t> row(b.size() + 1);
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> two_above;
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    two_above = std::exchange(above, std::exchange(row, std::move(two_above)));
    row.assign(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({row[j - 1] + 1, above[j] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row;
}

// Returns the name that has a prefix at an edit distance of at most 1 from `typed`, such as --nproc-per-node
// for --nprocs. Returns an empty string unless exactly one name has such a prefix.
absl::string_view NearestBeginning(absl::string_view typed, absl::Span<const absl::string_view> names) {
  constexpr size_t kShortest = 4;
  absl::string_view found;
  for (const absl::string_view name : names) {
    const std::vector<size_t> distances = Distances(typed, name);
    if (typed.size() < kShortest || *std::min_element(distances.begin(), distances.end()) > 1) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

// `typed`, truncated for a message.
std::string Shown(absl::string_view typed) {
  constexpr size_t kMost = 100;
  return absl::StrCat(typed.substr(0, kMost), typed.size() > kMost ? "..." : "");
}

}  // namespace

std::string VariableOf(const OptionSpec& spec) {
  if (spec.given_by != GivenBy::kVariableAndFile && spec.given_by != GivenBy::kVariable) return "";
  return absl::StrCat("PET_", absl::AsciiStrToUpper(absl::StrReplaceAll(spec.name, {{"-", "_"}})));
}

absl::StatusOr<const OptionSpec*> FindOption(absl::string_view typed) {
  const std::string name = WithHyphens(typed);
  std::vector<const OptionSpec*> found;
  std::vector<absl::string_view> names;
  for (const OptionSpec& spec : OptionTable()) {
    if (name == spec.name) return &spec;
    if (!name.empty() && absl::StartsWith(spec.name, name)) found.push_back(&spec);
    names.emplace_back(spec.name);
  }
  if (found.size() > 1) {
    std::vector<const OptionSpec*> torchruns;
    std::copy_if(found.begin(), found.end(), std::back_inserter(torchruns),
                 [](const OptionSpec* spec) { return spec->torchruns; });
    if (torchruns.size() == 1) found = std::move(torchruns);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    const absl::string_view nearest = Nearest(name, names);
    return absl::InvalidArgumentError(
        absl::StrCat("unknown option --", Shown(typed), ".",
                     nearest.empty() ? "" : absl::StrCat(" Did you mean --", nearest, "?")));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--", typed, " can mean ", absl::StrJoin(found, " or ", [](std::string* out, const OptionSpec* spec) {
        absl::StrAppend(out, "--", spec->name);
      })));
}

const OptionSpec* FindOption(char letter) {
  for (const OptionSpec& spec : OptionTable()) {
    if (letter != 0 && spec.letter == letter) return &spec;
  }
  return nullptr;
}

absl::string_view Nearest(absl::string_view typed, absl::Span<const absl::string_view> names) {
  constexpr size_t kLongest = 64;  // longer than every name
  if (typed.size() > kLongest) return "";
  absl::string_view best;
  size_t least = std::max<size_t>(2, typed.size() / 3) + 1;
  for (const absl::string_view name : names) {
    const size_t distance = Distances(typed, name).back();
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return best.empty() ? NearestBeginning(typed, names) : best;
}

std::string WithHyphens(absl::string_view name) { return absl::StrReplaceAll(name, {{"_", "-"}}); }

}  // namespace ddprun
