#include "launcher/gpu/xid.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

constexpr size_t kMaxText = 300;  // of the driver's text that is kept
constexpr size_t kMaxName = 64;   // of the name of a process
constexpr char kCausedBy[] = " caused by previous Xid ";

constexpr char kProgram[] =
    "usually a bug of the program: run it with compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1";
constexpr char kReset[] = "reset the GPU (nvidia-smi -r) or reboot; if it recurs, have the GPU replaced";

struct Row {
  int code;
  XidMeaning meaning;
};

// Source: NVIDIA's Xid catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
constexpr Row kRows[] = {
    {8, {"GPU stopped processing", "restart the program; if it recurs, check the GPU"}},
    {13, {"graphics engine exception, such as an access out of bounds", kProgram}},
    {31, {"GPU memory page fault, an access to an invalid address", kProgram}},
    {32,
     {"invalid or corrupted push buffer", "often a fault on the PCI bus: check the GPU's slot and cabling"}},
    {43, {"GPU stopped processing because of a fault of the program; the GPU is healthy", kProgram}},
    {45, {"the driver has ended the program's channels", "", true}},
    {46, {"GPU stopped processing", kReset}},
    {48, {"double-bit ECC error", kReset}},
    {62, {"internal micro-controller halt", kReset}},
    {63,
     {"GPU memory row remapped or page retired",
      "takes effect when the GPU is reset: reset it when possible"}},
    {64, {"GPU memory remapping failure", kReset}},
    {69, {"graphics engine class error", kProgram}},
    {74,
     {"NVLink error",
      "reset the GPU or reboot; if it recurs, check both ends of the link (nvidia-smi nvlink -e)"}},
    {79,
     {"GPU has fallen off the bus",
      "reboot the host; if it recurs, check the GPU, its slot and its power supply"}},
    {92, {"high single-bit ECC error rate", "if it continues, have the GPU replaced"}},
    {94, {"contained memory error", "only this program is affected; reset the GPU when possible"}},
    {95, {"uncontained memory error", kReset}},
    {109, {"context switch timeout", kReset}},
    {119, {"GSP RPC timeout: the GPU's system processor does not respond", kReset}},
    {120, {"GSP error: the GPU's system processor has failed", kReset}},
    {137, {"NVLink privilege error, an access to an invalid address of a peer", kProgram}},
    {140, {"unrecovered ECC error", kReset}},
    {143, {"GPU initialization error", kReset}},
    {154, {"GPU recovery action changed", ""}},
};

// Removes digits from the beginning of `text` and returns their value in [0, max]; nullopt if there are none,
// or if the value is larger.
std::optional<int> TakeNumber(absl::string_view& text, int max) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int value = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &value) || value > max) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

// Removes `min` to `max` hexadecimal digits.
std::optional<unsigned> TakeHex(absl::string_view& text, size_t min, size_t max) {
  const size_t digits = std::min(text.find_first_not_of("0123456789abcdefABCDEF"), text.size());
  unsigned value = 0;
  if (digits < min || digits > max || !absl::SimpleHexAtoi(text.substr(0, digits), &value))
    return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

// Removes "domain:bus:device".
std::optional<PciAddress> TakePciAddress(absl::string_view& text) {
  PciAddress address;
  const std::optional<unsigned> domain = TakeHex(text, 4, 8);
  if (!domain || !absl::ConsumePrefix(&text, ":")) return std::nullopt;
  const std::optional<unsigned> bus = TakeHex(text, 2, 2);
  if (!bus || !absl::ConsumePrefix(&text, ":")) return std::nullopt;
  const std::optional<unsigned> device = TakeHex(text, 2, 2);
  if (!device) return std::nullopt;
  return PciAddress{*domain, *bus, *device};
}

// Removes ", KEY=VALUE" if `text` begins so. VALUE ends at the next comma.
std::optional<absl::string_view> TakeField(absl::string_view& text, absl::string_view key) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, ", ") || !absl::ConsumePrefix(&rest, key) ||
      !absl::ConsumePrefix(&rest, "=")) {
    return std::nullopt;
  }
  const absl::string_view value = rest.substr(0, rest.find(','));
  text = rest.substr(value.size());
  return absl::StripAsciiWhitespace(value);
}

// Returns `value` without quotes; empty if the driver did not know it.
absl::string_view Known(absl::string_view value) {
  absl::ConsumePrefix(&value, "'");
  absl::ConsumeSuffix(&value, "'");
  return value == "<unknown>" ? "" : value;
}

}  // namespace

std::optional<PciAddress> ParsePciAddress(absl::string_view text) {
  const std::optional<PciAddress> address = TakePciAddress(text);
  if (!address || (!text.empty() && text != ".0")) return std::nullopt;
  return address;
}

std::string ToString(const PciAddress& address) {
  return absl::StrCat(absl::Hex(address.domain, absl::kZeroPad4), ":",
                      absl::Hex(address.bus, absl::kZeroPad2), ":",
                      absl::Hex(address.device, absl::kZeroPad2), ".0");
}

std::optional<Xid> ParseXid(absl::string_view record) {
  Xid xid;
  absl::string_view text = record;
  if (!absl::ConsumePrefix(&text, "NVRM: Xid (")) {
    if (!absl::ConsumePrefix(&text, "nvidia-nvswitch")) return std::nullopt;
    if (!TakeNumber(text, std::numeric_limits<int>::max())) return std::nullopt;
    absl::ConsumePrefix(&text, ":");
    if (!absl::ConsumePrefix(&text, " SXid (")) return std::nullopt;
    xid.of_switch = true;
  }
  absl::ConsumePrefix(&text, "PCI:");
  const std::optional<PciAddress> address = TakePciAddress(text);
  // What follows the address names a part of the GPU.
  const size_t end = text.find("): ");
  if (!address || end == absl::string_view::npos || (end > 0 && text[0] != ' ' && text[0] != '.')) {
    return std::nullopt;
  }
  xid.address = *address;
  text.remove_prefix(end + sizeof "): " - 1);
  const std::optional<int> code = TakeNumber(text, std::numeric_limits<int>::max());
  if (!code || (!text.empty() && text[0] != ',')) return std::nullopt;
  xid.code = *code;
  if (!xid.of_switch) {
    if (const std::optional<absl::string_view> value = TakeField(text, "pid")) {
      pid_t pid = 0;
      if (absl::SimpleAtoi(Known(*value), &pid) && pid > 0) xid.pid = pid;
    }
    if (const std::optional<absl::string_view> value = TakeField(text, "name")) {
      xid.process = std::string(Known(*value).substr(0, kMaxName));
    }
  }
  if (const size_t at = text.rfind(kCausedBy); at != absl::string_view::npos) {
    absl::string_view number = text.substr(at + sizeof kCausedBy - 1);
    if (const std::optional<int> cause = TakeNumber(number, std::numeric_limits<int>::max())) {
      xid.caused_by = *cause;
      text = text.substr(0, at);
    }
  }
  absl::ConsumePrefix(&text, ",");
  xid.text = std::string(absl::StripAsciiWhitespace(text).substr(0, kMaxText));
  if (xid.of_switch && (absl::StartsWith(xid.text, "Severity ") || absl::StartsWith(xid.text, "Data {"))) {
    return std::nullopt;
  }
  return xid;
}

XidMeaning MeaningOf(const Xid& xid) {
  if (xid.of_switch) {
    return {.remedy =
                absl::StartsWith(xid.text, "Fatal") ? "reset the GPUs and the switches, or reboot" : ""};
  }
  const auto row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.code == xid.code; });
  XidMeaning meaning = row == std::end(kRows) ? XidMeaning{} : row->meaning;
  if (xid.caused_by != 0) meaning.is_consequence = true;
  return meaning;
}

}  // namespace ddprun
