#include "launcher/hosts/ssh_host_name.h"

#include <cstdio>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/config/program.h"
#include "launcher/hosting.h"

namespace ddprun {

std::string ParseSshHostName(absl::string_view output) {
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::ConsumePrefix(&line, "hostname ")) return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

std::string ReachableHostName(const std::vector<std::string>& ssh, const HostSlots& host) {
  if (!AddressesOf(host.name).empty()) return host.name;
  std::vector<std::string> words = {"timeout", "5"};
  words.insert(words.end(), ssh.begin(), ssh.end());
  words.insert(words.end(), {"-G", host.login});
  const std::string command = absl::StrCat(
      absl::StrJoin(words, " ", [](std::string* out, const std::string& word) { *out += ShellWord(word); }),
      " </dev/null 2>/dev/null");
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "re"), pclose);
  if (output == nullptr) return host.name;
  std::string text(64 << 10, '\0');
  text.resize(fread(text.data(), 1, text.size(), output.get()));
  const std::string name = ParseSshHostName(text);
  return name.empty() ? host.name : name;
}

}  // namespace ddprun
