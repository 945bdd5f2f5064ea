#include "launcher/cli/options.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/cli/config_file.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

struct Given {
  const OptionSpec* spec;
  std::string value;  // for a flag: "1" if on, "" if off
  std::string source;
};

template <typename... Text>
absl::Status Usage(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

// True if `arg`, which begins with '-', is a negative number, such as -1, -1.5 or -.5.
bool IsNegativeNumber(absl::string_view arg) {
  arg.remove_prefix(1);
  const auto is_digit = [](char c) { return absl::ascii_isdigit(c); };
  const size_t dot = arg.find('.');
  const absl::string_view decimals = dot == absl::string_view::npos ? arg : arg.substr(dot + 1);
  const absl::string_view whole = dot == absl::string_view::npos ? "" : arg.substr(0, dot);
  return !decimals.empty() && std::all_of(decimals.begin(), decimals.end(), is_digit) &&
         std::all_of(whole.begin(), whole.end(), is_digit);
}

bool LooksLikeAnOption(absl::string_view arg) {
  return arg.size() > 1 && arg[0] == '-' && !IsNegativeNumber(arg);
}

// An argument that contains a space is a value even if it begins with '-', unless it begins with a known
// option.
bool CanBeAValue(absl::string_view arg) {
  if (!LooksLikeAnOption(arg)) return true;
  if (!absl::StrContains(arg, ' ')) return false;
  if (!absl::StartsWith(arg, "--")) return FindOption(arg[1]) == nullptr;
  return !absl::StrContains(arg, '=') || !FindOption(arg.substr(2, arg.find('=') - 2)).ok();
}

// Parses the options at the front of `args`.
class CommandLine {
 public:
  explicit CommandLine(const std::vector<std::string>& args) : args_(args) {}

  absl::Status Read() {
    while (next_ < args_.size() && LooksLikeAnOption(args_[next_])) {
      const std::string& arg = args_[next_++];
      if (arg == "--") break;
      RETURN_IF_ERROR(absl::StartsWith(arg, "--") ? ReadLong(arg) : ReadLetters(arg));
    }
    return absl::OkStatus();
  }

  const std::vector<Given>& given() const { return given_; }
  std::vector<std::string> Rest() const {
    return {args_.begin() + static_cast<ptrdiff_t>(next_), args_.end()};
  }

 private:
  absl::Status ReadLong(const std::string& arg) {
    const size_t equals = arg.find('=');
    const std::string typed = arg.substr(0, equals);
    ASSIGN_OR_RETURN(const OptionSpec* const spec, FindOption(absl::string_view(typed).substr(2)));
    std::optional<std::string> joined;
    if (equals != std::string::npos) joined = arg.substr(equals + 1);
    if (!spec->is_flag()) return TakeValue(*spec, typed, joined);
    if (joined) return Usage(arg, ": ", typed, " takes no value");
    Add(*spec, "1");
    return absl::OkStatus();
  }

  // Reads -r3, -r=3 or -r 3. Flags may come before the letter in the same argument, as in -mr3.
  absl::Status ReadLetters(const std::string& arg) {
    for (absl::string_view letters = absl::string_view(arg).substr(1); !letters.empty();) {
      const std::string typed = absl::StrCat("-", letters.substr(0, 1));
      const OptionSpec* const spec = FindOption(letters[0]);
      if (spec == nullptr) return UnknownLetter(typed, arg);
      letters.remove_prefix(1);
      if (!spec->is_flag()) {
        if (letters.empty()) return TakeValue(*spec, typed, std::nullopt);
        return TakeValue(*spec, typed, std::string(letters.substr(letters[0] == '=' ? 1 : 0)));
      }
      if (absl::StartsWith(letters, "=")) return Usage(arg, ": ", typed, " takes no value");
      Add(*spec, "1");
    }
    return absl::OkStatus();
  }

  // Returns the error for the unknown `letter` in `arg`. `arg` may be a long option with only one hyphen.
  static absl::Status UnknownLetter(const std::string& letter, const std::string& arg) {
    const auto meant = FindOption(absl::string_view(arg).substr(1, arg.find('=') - 1));
    if (arg.size() > letter.size() && meant.ok())
      return Usage("unknown option ", letter, " in ", arg, ". Did you mean --", (*meant)->name, "?");
    return Usage("unknown option ", arg.size() > letter.size() ? absl::StrCat(letter, " in ", arg) : letter);
  }

  absl::Status TakeValue(const OptionSpec& spec, const std::string& typed,
                         const std::optional<std::string>& joined) {
    if (joined) {
      Add(spec, *joined);
      return absl::OkStatus();
    }
    if (next_ == args_.size() || !CanBeAValue(args_[next_])) {
      return Usage(typed, " needs a value: ", typed, "=", spec.value);
    }
    Add(spec, args_[next_++]);
    return absl::OkStatus();
  }

  void Add(const OptionSpec& spec, std::string value) {
    given_.push_back({&spec, std::move(value), absl::StrCat("--", spec.name)});
  }

  const std::vector<std::string>& args_;
  size_t next_ = 0;
  std::vector<Given> given_;
};

absl::StatusOr<std::vector<Given>> FromEnvironment(const GetEnv& get_env) {
  std::vector<Given> given;
  for (const OptionSpec& spec : OptionTable()) {
    const std::string variable = VariableOf(spec);
    if (variable.empty()) continue;
    const std::optional<std::string> value = get_env(variable);
    if (!value) continue;
    if (!spec.is_flag()) {
      given.push_back({&spec, *value, variable});
      continue;
    }
    int64_t number;
    if (!absl::SimpleAtoi(*value, &number)) {
      return Usage(variable, "=", *value, ": expected a whole number (0: off, anything else: on)");
    }
    given.push_back({&spec, number != 0 ? "1" : "", variable});
  }
  return given;
}

}  // namespace

std::string Options::Quote(absl::string_view name) const {
  const Entry& entry = At(name);
  return absl::StrCat(entry.source.empty() ? absl::StrCat("--", name) : entry.source, "=", entry.value);
}

void Options::Offer(absl::string_view name, std::string value, std::string source) {
  Entry& entry = entries_.find(std::string(name))->second;
  if (entry.source.empty()) entry = {std::move(value), std::move(source)};
}

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& args, const GetEnv& get_env,
                                     const ReadFile& read_file) {
  Options options;
  CommandLine command_line(args);
  RETURN_IF_ERROR(command_line.Read());
  options.program_ = command_line.Rest();
  ASSIGN_OR_RETURN(const std::vector<Given> environment, FromEnvironment(get_env));
  for (const OptionSpec& spec : OptionTable()) options.entries_[spec.name] = {spec.fallback, ""};
  const auto take = [&](const std::vector<Given>& given) {
    for (const Given& g : given) options.entries_[g.spec->name] = {g.value, g.source};
  };
  // The first pass finds the path of the configuration file. The file's values are then set, and overridden
  // by the environment and the command line in a second pass.
  take(environment);
  take(command_line.given());
  const bool starts_a_job = !options.IsSet("help") && !options.IsSet("version") &&
                            !options.IsSet("store-only") && !options.IsGiven("print-completion");
  if (options.IsGiven("config") && starts_a_job) {
    const std::string path = options.Get("config");
    if (path.empty()) return Usage(options.Quote("config"), ": expected a file");
    const absl::StatusOr<std::string> text = read_file(path);
    if (!text.ok()) return Usage(options.Quote("config"), ": ", std::string(text.status().message()));
    ASSIGN_OR_RETURN(ConfigFile file, ParseConfigFile(*text, path));
    for (ConfigFile::Value& value : file.values) {
      options.entries_[value.option] = {std::move(value.text), std::move(value.source)};
    }
    take(environment);
    take(command_line.given());
    options.program_env_ = std::move(file.env);
    if (options.program_.empty()) options.program_ = std::move(file.program);
  }
  return options;
}

}  // namespace ddprun
