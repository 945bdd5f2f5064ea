// Errors of GPUs in the kernel's log: the Xid messages of NVIDIA's driver, and the SXid messages of
// NVSwitches.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// The address of a GPU or a switch on the PCI bus. The function is always 0.
struct PciAddress {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;

  auto operator<=>(const PciAddress&) const = default;
};

// Parses "0000:3b:00", which may be followed by ".0". The domain has 4 to 8 digits.
std::optional<PciAddress> ParsePciAddress(absl::string_view text);
// Returns a text such as "0000:3b:00.0", as in /sys/bus/pci/devices.
std::string ToString(const PciAddress& address);

struct Xid {
  PciAddress address = {};
  bool of_switch = false;  // an SXid of an NVSwitch
  int code = 0;            // 79
  std::optional<pid_t> pid =
      {};  // of the process that used the GPU, in the initial PID namespace; nullopt: not known
  std::string process = {};  // its name; may be empty
  std::string text = {};     // the driver's text: "GPU has fallen off the bus."
  int caused_by = 0;         // the Xid that has caused this one, according to the driver; 0: none is named

  bool operator==(const Xid&) const = default;
};

// Parses the text of a record of the kernel's log. Returns nullopt if it is not a complete Xid or SXid
// message, or if it only adds details to the SXid before it ("Severity 1 Engine instance 46 ...", "Data {0x...").
// The driver's versions write them in several forms:
//   NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
//   NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
//   NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=7194, Contained: CE User Channel (0x9).
//   NVRM: Xid (PCI:0000:3b:00): 45, pid=1234, name=python, Ch 00000008 caused by previous Xid 94
//   NVRM: Xid (0000:3b:00): 13, 0005 00000000 0000502d 00000104
//   nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
std::optional<Xid> ParseXid(absl::string_view record);

// What an Xid means and what to do about it, according to NVIDIA's Xid catalog. The texts have static
// lifetime.
struct XidMeaning {
  absl::string_view what = {};    // empty: the code is not in this program's table
  absl::string_view remedy = {};  // empty: none
  // Usually follows from another error, or from the end of the process.
  bool is_consequence = false;
};
XidMeaning MeaningOf(const Xid& xid);

}  // namespace ddprun
