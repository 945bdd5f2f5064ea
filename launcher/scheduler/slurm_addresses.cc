#include "launcher/scheduler/slurm_addresses.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

// Whether the name of the node needs no quotes in a shell command.
bool IsPlain(absl::string_view node) {
  return !node.empty() && node[0] != '-' && std::all_of(node.begin(), node.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

std::vector<std::string> ParseNodeAddresses(absl::string_view line, absl::string_view node) {
  std::vector<std::string> addresses;
  for (absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (!absl::ConsumePrefix(&word, "NodeAddr=") && !absl::ConsumePrefix(&word, "NodeHostName=")) continue;
    const bool known = std::find(addresses.begin(), addresses.end(), word) != addresses.end();
    if (!word.empty() && word != node && !known) addresses.emplace_back(word);
  }
  return addresses;
}

std::vector<std::string> SlurmAddressesOf(const std::string& node) {
  if (!IsPlain(node)) return {};
  // timeout(1), because scontrol waits for a controller that does not answer.
  const std::string command = absl::StrCat("timeout 5 scontrol show node --oneliner ", node, " 2>/dev/null");
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "re"), pclose);
  if (output == nullptr) return {};
  std::string line(4096, '\0');
  line.resize(fread(line.data(), 1, line.size(), output.get()));
  return ParseNodeAddresses(line, node);
}

}  // namespace ddprun
