#include "worker_sdk/snapshot/snapshot.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<float> kFloats = {1.5f, -2, 3, 0, 5, 6};
const std::vector<double> kDoubles = {0.1, 0.2};

Snapshot Example() {
  return {.step = 40,
          .world_size = 4,
          .round = Round(7),
          .attributes = {{"model.layers", "2"}, {"quoted \" and \n", "\\ \xc3\xa9"}},
          .tensors = {ViewOf("weight", {2, 3}, kFloats), ViewOf("empty", {0, 9}, std::span<const float>()),
                      ViewOf("scalar pair", {2}, kDoubles)}};
}

std::string Encode(const Snapshot& snapshot) {
  std::string file = EncodeSnapshotHead(snapshot);
  for (const TensorView& tensor : snapshot.tensors) file.append(tensor.bytes.data(), tensor.bytes.size());
  return file;
}

TEST(Sha256Test, KnownAnswers) {  // FIPS 180-4, examples
  EXPECT_EQ(ToHex(Sha256Of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(Sha256().Update("a").Update("").Update("bc").Finish()), ToHex(Sha256Of("abc")));
}

TEST(SnapshotTest, RoundTrips) {
  const std::string file = Encode(Example());
  const StatusOr<ParsedSnapshot> parsed = ParseSnapshot(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Snapshot& snapshot = parsed->snapshot;
  EXPECT_EQ(snapshot.step, 40);
  EXPECT_EQ(snapshot.world_size, 4);
  EXPECT_EQ(snapshot.round, Round(7));
  EXPECT_EQ(snapshot.attributes, Example().attributes);
  EXPECT_EQ(snapshot.Integer("model.layers").value(), 2);
  ASSERT_EQ(snapshot.tensors.size(), 3);
  EXPECT_EQ(snapshot.tensors[0].name, "weight");
  EXPECT_THAT(snapshot.tensors[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(snapshot.tensors[1].shape, ElementsAre(0, 9));
  std::vector<float> floats(6);
  std::vector<double> doubles(2);
  EXPECT_TRUE(snapshot.Copy("weight", std::span(floats)).ok());
  EXPECT_TRUE(snapshot.Copy("scalar pair", std::span(doubles)).ok());
  EXPECT_EQ(floats, kFloats);
  EXPECT_EQ(doubles, kDoubles);
}

// The bytes are those of the section "Example" in docs/snapshot_format.md. Another program computed the
// digest.
TEST(SnapshotTest, EncodesTheDocumentedExample) {
  const std::vector<float> bias = {1, -2};
  const std::string file = Encode({.step = 40,
                                   .world_size = 4,
                                   .round = Round(7),
                                   .attributes = {{"sampler.seed", "1"}},
                                   .tensors = {ViewOf("bias", {2}, bias)}});
  ASSERT_EQ(file.size(), 292);
  EXPECT_EQ(file.substr(0, 16), std::string_view("ddpsnap\n\x01\0\0\0\xec\0\0\0", 16));
  EXPECT_EQ(ToHex(file.substr(252, 8)), "453ee2971d55751e");
  EXPECT_EQ(ToHex(file.substr(284)), "0000803f000000c0");
}

TEST(SnapshotTest, EveryDTypeIsStored) {
  const std::string bytes(24, 'x');
  Snapshot snapshot = Example();
  snapshot.tensors.clear();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                            DType::kInt32, DType::kInt64, DType::kUInt8}) {
    snapshot.tensors.push_back({NameOf(dtype), dtype, {24 / SizeOf(dtype)}, bytes});
  }
  const std::string file = Encode(snapshot);
  const StatusOr<ParsedSnapshot> parsed = ParseSnapshot(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->snapshot.tensors.size(), 7);
  for (const TensorView& tensor : parsed->snapshot.tensors) {
    EXPECT_EQ(tensor.name, NameOf(tensor.dtype));
    EXPECT_EQ(tensor.bytes, bytes);
  }
}

TEST(SnapshotTest, ErrorsNameTheMismatch) {
  const Snapshot snapshot = Example();
  std::vector<float> six(6), five(5);
  std::vector<double> six_doubles(6);
  EXPECT_EQ(snapshot.Copy("weight", std::span(five)),
            FailedPreconditionError("tensor weight is f32 in 24 bytes, not f32 in 20"));
  EXPECT_EQ(snapshot.Copy("weight", std::span(six_doubles)),
            FailedPreconditionError("tensor weight is f32 in 24 bytes, not f64 in 48"));
  EXPECT_EQ(snapshot.Copy("bias", std::span(six)), NotFoundError("there is no tensor bias"));
  EXPECT_EQ(snapshot.Integer("model.width").status(), NotFoundError("there is no attribute model.width"));
  EXPECT_TRUE(IsDataLoss(snapshot.Integer("quoted \" and \n").status()));
}

TEST(SnapshotTest, IdentityDependsOnEveryElement) {
  const std::string identity = ParseSnapshot(Encode(Example()))->sha256;
  EXPECT_EQ(ParseSnapshot(Encode(Example()))->sha256, identity);
  std::vector<float> others = kFloats;
  others[5] = -others[5];
  Snapshot changed = Example();
  changed.tensors[0] = ViewOf("weight", {2, 3}, others);
  EXPECT_NE(ParseSnapshot(Encode(changed))->sha256, identity);
}

TEST(SnapshotTest, EveryFlippedBitIsDetected) {
  const std::string file = Encode(Example());
  for (size_t i = 0; i < 8 * file.size(); ++i) {
    std::string damaged = file;
    damaged[i / 8] ^= static_cast<char>(1 << i % 8);
    ASSERT_FALSE(ParseSnapshot(damaged).ok()) << "bit " << i % 8 << " of byte " << i / 8;
  }
}

TEST(SnapshotTest, EveryTruncationAndTrailingDataIsDetected) {
  const std::string file = Encode(Example());
  for (size_t size = 0; size < file.size(); ++size) {
    const Status status = ParseSnapshot(std::string_view(file).substr(0, size)).status();
    ASSERT_TRUE(IsDataLoss(status)) << size << " bytes: " << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr("torn")) << size << " bytes";
  }
  EXPECT_TRUE(IsDataLoss(ParseSnapshot(file + "x").status()));
}

TEST(SnapshotTest, ALaterVersionIsNotReportedAsDamage) {
  std::string file = Encode(Example());
  file[8] = 2;
  EXPECT_EQ(ParseSnapshot(file).status(),
            UnimplementedError("format version 2, but this program reads up to version 1"));
}

}  // namespace
}  // namespace ddprun
