#include "launcher/cli/yaml_map.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

absl::Status At(int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(line, ": ", what));
}

// Thrown by the event handler to abort the library's parser; caught in ParseYamlMap.
struct Refused {
  absl::Status status;
};

[[noreturn]] void Refuse(int line, absl::string_view what) { throw Refused{At(line, what)}; }

// Builds the entries from the events of the library's parser.
class Collector : public YAML::EventHandler {
 public:
  std::vector<YamlEntry> TakeEntries() { return std::move(entries_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++num_documents_ > 1) Refuse(Line(mark), "a second document begins: expected only one");
  }
  void OnDocumentEnd() override {}

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(Line(mark), "aliases (*name) are not supported: repeat the value");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    Refuse(Line(mark), "anchors (&name) are not supported");
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (level_ == Level::kFile) return;  // an empty file
    if (level_ != Level::kEntries) Refuse(Line(mark), "missing value: write \"\" for an empty string");
    if (!name_) Refuse(Line(mark), "expected a name before the colon");
    AddEntry(YamlNull{});
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    CheckTag(mark, tag);
    if (value.find('\0') != std::string::npos) Refuse(Line(mark), "a zero byte in a string");
    YamlText text = {value, Line(mark)};
    switch (level_) {
      case Level::kFile:
        RefuseOtherFile(mark);
      case Level::kEntries:
        if (name_) return AddEntry(std::move(text));
        return SetName(std::move(text));
      case Level::kList:
        return std::get<std::vector<YamlText>>(entries_.back().value).push_back(std::move(text));
      case Level::kMap:
        if (!inner_name_) return SetInnerName(std::move(text));
        std::get<std::vector<YamlPair>>(entries_.back().value)
            .push_back({*std::exchange(inner_name_, std::nullopt), std::move(text)});
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    if (level_ == Level::kFile) RefuseOtherFile(mark);
    BeginInner(mark, std::vector<YamlText>(), Level::kList);
  }
  void OnSequenceEnd() override { level_ = Level::kEntries; }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    if (level_ == Level::kFile) {
      level_ = Level::kEntries;
    } else {
      BeginInner(mark, std::vector<YamlPair>(), Level::kMap);
    }
  }
  void OnMapEnd() override { level_ = level_ == Level::kMap ? Level::kEntries : Level::kFile; }

 private:
  enum class Level { kFile, kEntries, kList, kMap };

  static int Line(const YAML::Mark& mark) { return mark.line + 1; }

  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") Refuse(Line(mark), "tags (!name) are not supported");
  }
  [[noreturn]] static void RefuseOtherFile(const YAML::Mark& mark) {
    Refuse(Line(mark), "expected lines of NAME: VALUE, such as nnodes: 2");
  }

  void SetName(YamlText name) {
    if (!names_.insert(name.text).second) {
      Refuse(name.line, absl::StrCat(name.text, " is given twice"));
    }
    name_ = std::move(name);
    inner_names_.clear();
  }
  void SetInnerName(YamlText name) {
    if (!inner_names_.insert(name.text).second) {
      Refuse(name.line, absl::StrCat(name.text, " is given twice in ", entries_.back().name.text));
    }
    inner_name_ = std::move(name);
  }

  void AddEntry(YamlValue value) {
    entries_.push_back({*std::exchange(name_, std::nullopt), std::move(value)});
  }
  void BeginInner(const YAML::Mark& mark, YamlValue empty, Level level) {
    if (level_ != Level::kEntries) Refuse(Line(mark), "nested too deeply: expected a string");
    if (!name_) Refuse(Line(mark), "expected a name before the colon");
    AddEntry(std::move(empty));
    level_ = level;
  }

  int num_documents_ = 0;
  Level level_ = Level::kFile;
  std::vector<YamlEntry> entries_;
  std::optional<YamlText> name_;        // in kEntries: the name whose value is expected
  std::optional<YamlText> inner_name_;  // in kMap: the name in the inner map whose value is expected
  std::set<std::string> names_;
  std::set<std::string> inner_names_;  // names in the map of entries_.back()
};

// Rejects texts that are too long. Also rejects control characters, because the library uses some of them as
// internal markers.
absl::Status CheckCharacters(absl::string_view text) {
  if (text.size() > kMaxBytes) {
    return At(1, absl::StrCat("too long: a configuration file may have at most ", kMaxBytes, " bytes"));
  }
  int line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\n' && c != '\r' && c != '\t') {
      return At(line, "a control character: this is not a text file");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<YamlEntry>> ParseYamlMap(absl::string_view text) {
  if (absl::Status status = CheckCharacters(text); !status.ok()) return status;
  Collector collector;
  try {
    // The library silently closes an open quote at the end of the file if the last line is complete, so
    // append an incomplete line.
    std::istringstream stream(absl::StrCat(text, "\n#"));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(collector)) {
    }
  } catch (const Refused& refused) {
    return refused.status;
  } catch (const YAML::Exception& error) {
    // For an unclosed value, the library reports a line after the end of the file.
    const auto last = static_cast<int>(std::count(text.begin(), absl::StripSuffix(text, "\n").end(), '\n'));
    return At(std::clamp(error.mark.line, 0, last) + 1, absl::StrCat("invalid YAML: ", error.msg));
  }
  return collector.TakeEntries();
}

}  // namespace ddprun
