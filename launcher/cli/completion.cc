#include "launcher/cli/completion.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

// The fixed values of an option: the lower-case words of "N|auto|gpu|cpu".
std::vector<absl::string_view> Words(const OptionSpec& spec) {
  std::vector<absl::string_view> words;
  for (const absl::string_view word : absl::StrSplit(spec.value, '|', absl::SkipEmpty())) {
    if (absl::ascii_islower(static_cast<unsigned char>(word[0]))) words.push_back(word);
  }
  return words;
}

bool TakesPath(const OptionSpec& spec) {
  return absl::string_view(spec.value) == "FILE" || absl::string_view(spec.value) == "DIR";
}

// A pattern for a shell case statement: "-r|--redirects".
std::string Pattern(const OptionSpec& spec) {
  return absl::StrCat(spec.letter == 0 ? "" : absl::StrCat("-", std::string(1, spec.letter), "|"), "--",
                      spec.name);
}

std::string ValuePatterns() {
  std::vector<std::string> patterns;
  for (const OptionSpec& spec : OptionTable()) {
    if (!spec.is_flag()) patterns.push_back(Pattern(spec));
  }
  return absl::StrJoin(patterns, "|");
}

std::string Names() {
  return absl::StrJoin(OptionTable(), " ", [](std::string* out, const OptionSpec& spec) {
    absl::StrAppend(out, "--", spec.name);
  });
}

// Branches of a case statement over the option's name, valid in bash and zsh.
std::string ValueBranches() {
  std::string branches;
  for (const OptionSpec& spec : OptionTable()) {
    if (spec.is_flag()) continue;
    const std::string words = absl::StrJoin(Words(spec), " ");
    if (!words.empty()) {
      absl::StrAppend(&branches, "        ", Pattern(spec), ") values='", words, "' ;;\n");
    } else if (TakesPath(spec)) {
      absl::StrAppend(&branches, "        ", Pattern(spec), ") path=1 ;;\n");
    }
  }
  return branches;
}

// bash splits words at '=', so the function receives --a=b as three words.
constexpr char kBash[] =
    R"sh(# Completes ddprun in bash: eval "$(ddprun --print-completion bash)"
_ddprun() {
  local cur=${COMP_WORDS[COMP_CWORD]} expects=option option= values= path= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case $expects:${COMP_WORDS[i]} in
      value:=) ;;
      value:*) expects=option ;;
      option:--) expects=program ;;
      option:-*)
        option=${COMP_WORDS[i]//_/-}
        case $option in
          @PATTERNS@) expects=value ;;
        esac
        ;;
      option:*) expects=program ;;
    esac
  done
  COMPREPLY=()
  case $expects:$cur in
    value:*)
      [[ $cur == = ]] && cur=
      case $option in
@BRANCHES@      esac
      [[ -n $path ]] && return
      compopt +o default 2>/dev/null
      COMPREPLY=($(compgen -W "$values" -- "$cur"))
      ;;
    option:-*)
      COMPREPLY=($(compgen -W '@NAMES@' -- "${cur//_/-}"))
      ;;
  esac
}
complete -o default -F _ddprun ddprun
)sh";

constexpr char kZsh[] = R"sh(#compdef ddprun
# Completes ddprun in zsh: save this script as _ddprun in a directory of $fpath, or run after compinit:
# eval "$(ddprun --print-completion zsh)"
_ddprun() {
  local cur=${words[CURRENT]} expects=option option= values= path= word i
  local -a options=(
@DESCRIBED@  )
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    case $expects:$word in
      value:*) expects=option ;;
      option:--) expects=program ;;
      option:-*=*) ;;
      option:-*)
        option=${word//_/-}
        case $option in
          @PATTERNS@) expects=value ;;
        esac
        ;;
      option:*) expects=program ;;
    esac
  done
  if [[ $expects == option && $cur == --*=* ]]; then
    option=${${cur%%=*}//_/-}
    expects=value
    compset -P '*='
  fi
  case $expects:$cur in
    value:*)
      case $option in
@BRANCHES@      esac
      if [[ -n $path ]]; then _files; else compadd -- ${=values}; fi
      ;;
    option:-*) _describe -o option options ;;
    *) _files ;;
  esac
}
if [[ $funcstack[1] == _ddprun ]]; then _ddprun "$@"; else compdef _ddprun ddprun; fi
)sh";

// The first sentence of each option's help, quoted for _describe.
std::string Described() {
  std::string lines;
  for (const OptionSpec& spec : OptionTable()) {
    const std::string sentence(
        absl::string_view(spec.help).substr(0, absl::string_view(spec.help).find(". ")));
    absl::StrAppend(&lines, "    '--", spec.name, ":", absl::StrReplaceAll(sentence, {{"'", "'\\''"}}),
                    "'\n");
  }
  return lines;
}

// Returns a single line, which tcsh can eval as the output of a command in backquotes.
std::string Tcsh() {
  std::string rules;
  for (const OptionSpec& spec : OptionTable()) {
    const std::string words = absl::StrJoin(Words(spec), " ");
    const std::string list = TakesPath(spec) ? "f" : words.empty() ? "" : absl::StrCat("(", words, ")");
    if (list.empty()) continue;
    absl::StrAppend(&rules, " 'c/--", spec.name, "=/", list, "/' 'n/--", spec.name, "/", list, "/'");
  }
  const std::string names = absl::StrJoin(
      OptionTable(), " ", [](std::string* out, const OptionSpec& spec) { absl::StrAppend(out, spec.name); });
  return absl::StrCat("complete ddprun", rules, " 'c/--/(", names, ")/' 'p/*/f/'\n");
}

}  // namespace

std::string CompletionScript(absl::string_view shell) {
  if (shell == "tcsh") return Tcsh();
  return absl::StrReplaceAll(shell == "bash" ? kBash : kZsh, {{"@PATTERNS@", ValuePatterns()},
                                                              {"@BRANCHES@", ValueBranches()},
                                                              {"@DESCRIBED@", Described()},
                                                              {"@NAMES@", Names()}});
}

}  // namespace ddprun
