#include "launcher/cli/option_help.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/exit_code.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kTextColumn = 34;  // where the descriptions of options begin

constexpr char kIntroduction[] =
    R"(ddprun launches, monitors and restarts a distributed training job. Run it once on every node.

PROGRAM is an executable, or a .py file, which is run with $PYTHON_EXEC or python3. All arguments
after PROGRAM are passed to it, with ${local_rank} replaced by the worker's local rank.

Options are written --a-b or --a_b, with '=' or a space before the value. A unique prefix of an
option's name is enough. Most options take their default from an environment variable, such as
PET_NNODES for --nnodes; for an option without a value, set the variable to 1 (on) or 0 (off).
Defaults are in [brackets].
)";

constexpr char kExamples[] =
    R"(Examples:
  One node, one worker per GPU:
      ddprun --nproc-per-node=gpu train.py --epochs 3
  Two nodes, the same command on both:
      ddprun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=node0 --rdzv-id=job7 train.py
  One to four nodes, three restarts, output in files and on the console:
      ddprun --nnodes=1:4 --max-restarts=3 --log-dir=logs --tee=3 --nproc-per-node=8 train.py
  A program that is not a Python script:
      ddprun --no-python --nproc-per-node=4 ./train --shard='${local_rank}'
  Options and program from a file; print the commands without starting them:
      ddprun --config=job.yaml --dry-run
)";

// Appends `text`, wrapped at kColumns, with lines after the first indented to kTextColumn.
//   REQUIRES: `out` ends at kTextColumn.
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

std::string UsageLine() { return "usage: ddprun [options] PROGRAM [ARGUMENT...]\n"; }

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
