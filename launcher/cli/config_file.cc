#include "launcher/cli/config_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/yaml_map.h"

namespace ddprun {
namespace {

constexpr absl::string_view kProgram = "program";
constexpr absl::string_view kArgs = "args";
constexpr absl::string_view kEnv = "env";

bool FitsAFile(const OptionSpec& spec) {
  return spec.given_by == GivenBy::kVariableAndFile || spec.given_by == GivenBy::kFile;
}

std::optional<bool> ParseSwitch(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* on : {"true", "yes", "on"}) {
    if (lower == on) return true;
  }
  for (const char* off : {"false", "no", "off"}) {
    if (lower == off) return false;
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(absl::string_view path) : path_(path) {}

  absl::StatusOr<ConfigFile> Read(const std::vector<YamlEntry>& entries) {
    for (const YamlEntry& entry : entries) RETURN_IF_ERROR(ReadEntry(entry));
    if (args_ != nullptr && file_.program.empty()) {
      return Bad(args_->name, "", "requires a program, as in program: train.py");
    }
    if (args_ != nullptr) {
      for (const YamlText& arg : std::get<std::vector<YamlText>>(args_->value)) {
        file_.program.push_back(arg.text);
      }
    }
    return std::move(file_);
  }

 private:
  // Returns ConfigFile::Value::source, such as "job.yaml:3: nnodes".
  std::string Source(const YamlText& name) const {
    return absl::StrCat(path_, ":", name.line, ": ", name.text);
  }
  absl::Status Bad(const YamlText& name, absl::string_view joint, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(Source(name), joint, " ", what));
  }

  absl::Status ReadEntry(const YamlEntry& entry) {
    if (entry.name.text == kProgram) return ReadProgram(entry);
    if (entry.name.text == kArgs) return ReadArgs(entry);
    if (entry.name.text == kEnv) return ReadEnv(entry);
    ASSIGN_OR_RETURN(const OptionSpec* const spec, FindName(entry.name));
    for (const ConfigFile::Value& other : file_.values) {
      if (other.option == spec->name) {
        return Bad(entry.name, ":", absl::StrCat("already given as ", other.source));
      }
    }
    ASSIGN_OR_RETURN(std::string text, TextOf(*spec, entry));
    file_.values.push_back({spec->name, std::move(text), Source(entry.name)});
    return absl::OkStatus();
  }

  absl::StatusOr<const OptionSpec*> FindName(const YamlText& name) const {
    const std::string declared = WithHyphens(name.text);
    std::vector<absl::string_view> names = {kProgram, kArgs, kEnv};
    for (const OptionSpec& spec : OptionTable()) {
      if (declared == spec.name) {
        if (FitsAFile(spec)) return &spec;
        return Bad(name, "", "cannot be given in a configuration file");
      }
      if (FitsAFile(spec)) names.emplace_back(spec.name);
    }
    const absl::string_view nearest = Nearest(declared, names);
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ":", name.line, ": unknown name ", name.text.substr(0, 100), ".",
                     nearest.empty() ? " Valid names are the options, program, args and env."
                                     : absl::StrCat(" Did you mean ", nearest, "?")));
  }

  absl::StatusOr<std::string> TextOf(const OptionSpec& spec, const YamlEntry& entry) const {
    if (std::holds_alternative<YamlNull>(entry.value)) {
      return Bad(entry.name, "", "has no value: give a value, or remove the line");
    }
    const auto* const text = std::get_if<YamlText>(&entry.value);
    if (spec.is_flag()) {
      const std::optional<bool> on = text != nullptr ? ParseSwitch(text->text) : std::nullopt;
      if (!on) return Bad(entry.name, ":", "expected true or false");
      return std::string(*on ? "1" : "");
    }
    if (text != nullptr) return text->text;
    const auto* const list = std::get_if<std::vector<YamlText>>(&entry.value);
    if (list == nullptr || spec.list == ListForm::kNone) {
      return Bad(
          entry.name, ":",
          absl::StrCat("expected a string", spec.list == ListForm::kNone ? "" : " or a list of strings",
                       ", as in ", entry.name.text, ": ", spec.value));
    }
    std::vector<std::string> parts;
    for (const YamlText& part : *list) {
      // In the joined text, an entry that is empty or begins with a comma could be misread.
      if (part.text.empty() || part.text[0] == ',') {
        return absl::InvalidArgumentError(absl::StrCat(path_, ":", part.line, ": an entry of ",
                                                       entry.name.text, " is empty or begins with a comma"));
      }
      parts.push_back(spec.list == ListForm::kEscaped ? absl::StrReplaceAll(part.text, {{",", ",,"}})
                                                      : part.text);
    }
    return absl::StrJoin(parts, ",");
  }

  absl::Status ReadProgram(const YamlEntry& entry) {
    const auto* const text = std::get_if<YamlText>(&entry.value);
    if (text == nullptr || text->text.empty()) {
      return Bad(entry.name, ":", "expected one string, as in program: train.py (arguments go into args)");
    }
    file_.program = {text->text};
    return absl::OkStatus();
  }

  absl::Status ReadArgs(const YamlEntry& entry) {
    if (!std::holds_alternative<std::vector<YamlText>>(entry.value)) {
      return Bad(entry.name, ":", "expected a list of strings, as in args: [--epochs, 3]");
    }
    args_ = &entry;
    return absl::OkStatus();
  }

  absl::Status ReadEnv(const YamlEntry& entry) {
    const auto* const pairs = std::get_if<std::vector<YamlPair>>(&entry.value);
    if (pairs == nullptr) {
      return Bad(entry.name, ":", "expected names and strings, as in env: {NCCL_DEBUG: INFO}");
    }
    for (const YamlPair& pair : *pairs) {
      if (pair.name.text.empty() || pair.name.text.find('=') != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat(path_, ":", pair.name.line, ": \"", pair.name.text,
                                                       "\" is not a valid variable name"));
      }
      file_.env.emplace_back(pair.name.text, pair.value.text);
    }
    return absl::OkStatus();
  }

  const absl::string_view path_;
  ConfigFile file_;
  const YamlEntry* args_ = nullptr;
};

}  // namespace

absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view text, absl::string_view path) {
  const absl::StatusOr<std::vector<YamlEntry>> entries = ParseYamlMap(text);
  if (!entries.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", std::string(entries.status().message())));
  }
  return Reader(path).Read(*entries);
}

}  // namespace ddprun
