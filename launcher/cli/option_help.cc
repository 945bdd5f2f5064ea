#include "launcher/cli/option_help.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/exit_code.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kTextColumn = 34;  // where what an option does begins

constexpr char kIntroduction[] =
    R"(ddprun starts, watches and heals a data-parallel training job: run it once on every node.

PROGRAM is a .py file, run with $PYTHON_EXEC or python3, or an executable, run as it is. All behind
it is its own; in it ${local_rank} stands for the worker's local rank.

Options are written --a-b or --a_b, with = or a blank before the value, and may be shortened while
only one fits. PET_<OPTION> in the environment, such as PET_NNODES, replaces an option's default; 1
and 0 switch those without a value on and off.
)";

constexpr char kExamples[] =
    R"(Examples:
  One node, a worker for each GPU:
      ddprun --nproc-per-node=gpu train.py --epochs 3
  Two nodes, the same line on both:
      ddprun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=node0 --rdzv-id=job7 train.py
  One to four nodes, three restarts, output in files and on the console:
      ddprun --nnodes=1:4 --max-restarts=3 --log-dir=logs --tee=3 --nproc-per-node=8 train.py
  A program that is not Python:
      ddprun --no-python --nproc-per-node=4 ./train --shard='${local_rank}'
  All of it in a file, and what that would start:
      ddprun --config=job.yaml --dry-run
)";

// `text` in lines that end before kColumns, from kTextColumn on; the first goes on where `out` is.
void AppendWrapped(absl::string_view text, std::string* out) {
  size_t column = kTextColumn;
  bool first = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!first && column + 1 + word.size() > kColumns) {
      absl::StrAppend(out, "\n", std::string(kTextColumn, ' '));
      column = kTextColumn;
    } else if (!first) {
      *out += ' ';
      ++column;
    }
    absl::StrAppend(out, word);
    column += word.size();
    first = false;
  }
  *out += '\n';
}

void AppendOption(const OptionSpec& spec, std::string* out) {
  std::string label = spec.letter == 0 ? absl::StrCat("      --", spec.name)
                                       : absl::StrCat("  -", std::string(1, spec.letter), ", --", spec.name);
  if (!spec.is_flag()) absl::StrAppend(&label, " ", spec.value);
  if (label.size() + 2 > kTextColumn) {
    absl::StrAppend(out, label, "\n", std::string(kTextColumn, ' '));
  } else {
    absl::StrAppend(out, label, std::string(kTextColumn - label.size(), ' '));
  }
  AppendWrapped(*spec.fallback == '\0' ? spec.help : absl::StrCat(spec.help, " [", spec.fallback, "]"), out);
}

}  // namespace

std::string UsageLine() { return "usage: ddprun [options] PROGRAM [its arguments]\n"; }

std::string HelpText() {
  std::string text = absl::StrCat(UsageLine(), "\n", kIntroduction);
  absl::string_view section;
  for (const OptionSpec& spec : OptionTable()) {
    if (section != spec.section) absl::StrAppend(&text, "\n", spec.section, ":\n");
    section = spec.section;
    AppendOption(spec, &text);
  }
  absl::StrAppend(&text, "\n", kExamples, "\n", ExitCodeHelp());
  return text;
}

}  // namespace ddprun
