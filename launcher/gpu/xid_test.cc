#include "launcher/gpu/xid.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr PciAddress kGpu = {0, 0x3b, 0};

// Prints the fields, so that a failed comparison shows them.
std::string Show(const std::optional<Xid>& xid) {
  if (!xid) return "none";
  return absl::StrCat(ToString(xid->address), xid->of_switch ? " switch " : " ", xid->code,
                      " pid=", xid->pid.value_or(-1), " name=", xid->process, " cause=", xid->caused_by, ": ",
                      xid->text);
}

TEST(ParseXidTest, AcceptsTheFormsOfTheDriver) {
  const struct {
    const char* record;
    Xid want;
  } kCases[] = {
      {"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
       {kGpu, false, 79, 1234, "python", "GPU has fallen off the bus."}},
      {"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
       {kGpu, false, 79, {}, "", "GPU has fallen off the bus."}},
      {"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
       {kGpu, false, 79, {}, "", "GPU has fallen off the bus."}},
      {"NVRM: Xid (PCI:0000:3B:00): 79, pid=1122, GPU has fallen off the bus.",
       {kGpu, false, 79, 1122, "", "GPU has fallen off the bus."}},
      {"NVRM: Xid (PCI:0000:3b:00): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE "
       "GRAPHICS "
       "GPC2 GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
       {kGpu, false, 31, 79749, "exe",
        "Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ "
        "0x2b57_b3000000. Fault "
        "is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"}},
      {"NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python, Graphics SM Warp Exception on (GPC 0, TPC 1, "
       "SM 0): Out "
       "Of Range Address",
       {kGpu, false, 13, 1234, "python",
        "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address"}},
      {"NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: "
       "No",
       {kGpu, false, 94, 7194, "", "Contained: CE User Channel (0x9). RST: No, D-RST: No"}},
      {"NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 43, pid=7194, name=a b, Ch 00000010",
       {kGpu, false, 43, 7194, "a b", "Ch 00000010"}},
      {"NVRM: Xid (PCI:0000:3b:00): 45, pid=1234, name=python, Ch 00000008 caused by previous Xid 94",
       {kGpu, false, 45, 1234, "python", "Ch 00000008", 94}},
      {"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot "
       "Required)",
       {kGpu,
        false,
        154,
        {},
        "",
        "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"}},
      {"NVRM: Xid (PCI:0000:3b:00): 119, pid=77, name=python, Timeout after 6s of waiting for RPC response "
       "from GPU0 "
       "GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).",
       {kGpu, false, 119, 77, "python",
        "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) "
        "(0x20802a02 0x8)."}},
      {"NVRM: Xid (0000:3b:00): 13, 0005 00000000 0000502d 00000104 00000000 00000100",
       {kGpu, false, 13, {}, "", "0005 00000000 0000502d 00000104 00000000 00000100"}},
      {"NVRM: Xid (PCI:0000:3b:00): 48", {kGpu, false, 48}},
      {"NVRM: Xid (PCI:0001:3b:1f): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to "
       "activate.",
       {{1, 0x3b, 0x1f},
        false,
        63,
        1896,
        "",
        "Row Remapper: New row marked for remapping, reset gpu to activate."}},
      {"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error "
       "(First)",
       {{0, 0xc1, 0}, true, 12028, {}, "", "Non-fatal, Link 32 egress non-posted PRIV error (First)"}},
      {"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11001, Fatal, ingress invalid command",
       {{0, 0xc1, 0}, true, 11001, {}, "", "Fatal, ingress invalid command"}},
      // Fields that are not numbers count as unknown.
      {"NVRM: Xid (PCI:0000:3b:00): 79, pid=-5, name=, x", {kGpu, false, 79, {}, "", "x"}},
      {"NVRM: Xid (PCI:0000:3b:00): 79, pid=0, x", {kGpu, false, 79, {}, "", "x"}},
      {"NVRM: Xid (PCI:0000:3b:00): 79, pid=99999999999, x", {kGpu, false, 79, {}, "", "x"}},
      {"NVRM: Xid (PCI:0000:3b:00): 45, pid=1, Ch 1 caused by previous Xid x",
       {kGpu, false, 45, 1, "", "Ch 1 caused by previous Xid x"}},
  };
  for (const auto& c : kCases) EXPECT_EQ(Show(ParseXid(c.record)), Show(c.want)) << c.record;
}

TEST(ParseXidTest, RejectsOtherRecords) {
  for (const char* record : {
           "",
           "NVRM: GPU at PCI:0000:3b:00: GPU-0b11d014-1685-04bd-26ed-5fc0bc1c44ae",
           "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
           "NVRM: Xid",
           "NVRM: Xid (",
           "NVRM: Xid (PCI:0000:3b:00",
           "NVRM: Xid (PCI:0000:3b:00)",
           "NVRM: Xid (PCI:0000:3b:00): ",
           "NVRM: Xid (PCI:0000:3b:00): x, y",
           "NVRM: Xid (PCI:0000:3b:00): -79, y",
           "NVRM: Xid (PCI:0000:3b:00): 79x",
           "NVRM: Xid (PCI:0000:3b:00): 99999999999, y",
           "NVRM: Xid (PCI:0000:3b): 79, y",
           "NVRM: Xid (PCI:000:3b:00): 79, y",
           "NVRM: Xid (PCI:0000:3b:0g): 79, y",
           "NVRM: Xid (PCI:0000:3b:000): 79, y",
           "NVRM: Xid (PCI:0000:3b:00x): 79, y",
           "NVRM: Xid (GPU-0b11d014): 79, y",
           "nvidia-nvswitch: SXid (PCI:0000:c1:00.0): 11001, Fatal, x",
           "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
           // Details of the SXid before them.
           "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Severity 1 Engine instance 32 Sub-engine "
           "instance 00",
           "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Data {0x00140004, 0x00100000, 0x00000000}",
           "a program says: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
       }) {
    EXPECT_EQ(Show(ParseXid(record)), "none") << record;
  }
}

TEST(ParseXidTest, EveryBeginningOfAMessageIsSafe) {
  const std::string whole =
      "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 45, pid='1234', name=python, Ch 00000008 caused by previous Xid "
      "94";
  for (size_t n = 0; n <= whole.size(); ++n) {
    const std::string part = whole.substr(0, n);  // the sanitizer finds a read beyond its end
    if (const std::optional<Xid> xid = ParseXid(part)) {
      EXPECT_EQ(xid->address, kGpu) << part;
    }
  }
}

TEST(ParseXidTest, LimitsTextsOfUnknownLength) {
  const std::string x(1 << 20, 'x');
  const std::optional<Xid> xid =
      ParseXid(absl::StrCat("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=", x, ", ", x));
  ASSERT_TRUE(xid);
  EXPECT_LE(xid->process.size(), 64u);
  EXPECT_LE(xid->text.size(), 300u);
}

TEST(MeaningOfTest, NamesWhatToDo) {
  EXPECT_EQ(MeaningOf({.code = 79}).what, "GPU has fallen off the bus");
  EXPECT_THAT(std::string(MeaningOf({.code = 79}).remedy), HasSubstr("reboot the host"));
  for (const int code : {13, 31, 43}) {
    EXPECT_THAT(std::string(MeaningOf({.code = code}).remedy), HasSubstr("a bug of the program")) << code;
  }
  for (const int code : {48, 62, 63, 64, 74, 94, 95, 119, 120, 140}) {
    EXPECT_THAT(std::string(MeaningOf({.code = code}).remedy), HasSubstr("reset")) << code;
    EXPECT_FALSE(MeaningOf({.code = code}).is_consequence) << code;
  }
  EXPECT_THAT(std::string(MeaningOf({.code = 92}).remedy), HasSubstr("replaced"));
  EXPECT_TRUE(MeaningOf({.code = 45}).is_consequence);
  EXPECT_TRUE(MeaningOf({.code = 43, .caused_by = 94}).is_consequence);
  EXPECT_THAT(std::string(MeaningOf({.code = 4711}).what), IsEmpty());
  // The code of a switch is not the code of a GPU.
  EXPECT_THAT(std::string(MeaningOf({.of_switch = true, .code = 79}).what), IsEmpty());
}

TEST(PciAddressTest, ParsesWhatItPrints) {
  EXPECT_EQ(ToString(PciAddress{1, 0xdc, 0x1f}), "0001:dc:1f.0");
  EXPECT_EQ(ParsePciAddress("0001:dc:1f.0"), (PciAddress{1, 0xdc, 0x1f}));
  EXPECT_EQ(ParsePciAddress("00000001:DC:1F.0"), (PciAddress{1, 0xdc, 0x1f}));
  EXPECT_EQ(ParsePciAddress("0001:dc:1f"), (PciAddress{1, 0xdc, 0x1f}));
  for (const char* text : {"", "0001:dc:1f.1", "0001:dc", "dc:1f.0", "0001:dc:1f.0 "})
    EXPECT_EQ(ParsePciAddress(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ddprun
