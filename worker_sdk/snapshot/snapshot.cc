#include "worker_sdk/snapshot/snapshot.h"

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun {
namespace {

namespace json = boost::json;

static_assert(std::endian::native == std::endian::little, "numbers are stored in memory layout");

constexpr absl::string_view kMagic = "ddpsnap\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kFixedBytes = 16;  // magic, version, size of the JSON

absl::string_view Name(DType dtype) { return dtype == DType::kF32 ? "f32" : "f64"; }
int64_t ElemBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 8; }

absl::Status Damaged(absl::string_view what) { return absl::DataLossError(what); }

// Returns the number of elements in `shape`; -1 if a dimension is negative or the number overflows.
int64_t NumElems(absl::Span<const int64_t> shape) {
  int64_t num_elems = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && num_elems > std::numeric_limits<int64_t>::max() / 8 / dim)) return -1;
    num_elems *= dim;
  }
  return num_elems;
}

std::string Text(const json::value& value) { return {value.get_string().data(), value.get_string().size()}; }

// Reads the head's fields. status() names the first field that is missing or has the wrong type.
class Fields {
 public:
  explicit Fields(const json::object& object) : object_(object) {}

  int64_t Integer(absl::string_view name) {
    const json::value* value = Find(name);
    if (value != nullptr && value->is_int64()) return value->get_int64();
    return Miss(name, int64_t{0});
  }
  std::string String(absl::string_view name) {
    const json::value* value = Find(name);
    if (value != nullptr && value->is_string()) return Text(*value);
    return Miss(name, std::string());
  }
  const json::object* Object(absl::string_view name) {
    const json::value* value = Find(name);
    return value != nullptr && value->is_object() ? &value->get_object() : Miss(name, nullptr);
  }
  const json::array* Array(absl::string_view name) {
    const json::value* value = Find(name);
    return value != nullptr && value->is_array() ? &value->get_array() : Miss(name, nullptr);
  }

  [[nodiscard]] absl::Status status() const { return status_; }

 private:
  const json::value* Find(absl::string_view name) { return object_.if_contains({name.data(), name.size()}); }
  template <typename T>
  T Miss(absl::string_view name, T nothing) {
    status_.Update(Damaged(absl::StrCat("the head has no valid \"", name, "\"")));
    return nothing;
  }

  const json::object& object_;
  absl::Status status_;
};

json::object Describe(const TensorView& tensor, int64_t offset) {
  json::object object;
  object["name"] = tensor.name;
  object["dtype"] = Name(tensor.dtype).data();
  object["shape"] = json::array(tensor.shape.begin(), tensor.shape.end());
  object["offset"] = offset;
  object["bytes"] = static_cast<int64_t>(tensor.bytes.size());
  object["sha256"] = ToHex(Sha256Of(tensor.bytes));
  return object;
}

// Parses the description of a tensor, whose bytes are at the beginning of `data`. The description must
// declare the offset `offset`.
absl::StatusOr<TensorView> ParseTensor(const json::value& described, absl::string_view data, int64_t offset) {
  if (!described.is_object()) return Damaged("the head has a tensor description that is not an object");
  Fields fields(described.get_object());
  TensorView tensor{.name = fields.String("name"), .dtype = DType::kF32, .shape = {}, .bytes = {}};
  const std::string dtype = fields.String("dtype"), sha256 = fields.String("sha256");
  const json::array* shape = fields.Array("shape");
  const int64_t bytes = fields.Integer("bytes"), declared_offset = fields.Integer("offset");
  RETURN_IF_ERROR(fields.status(), tensor.name);
  for (const json::value& dim : *shape) {
    if (!dim.is_int64())
      return Damaged(absl::StrCat("tensor ", tensor.name, " has a shape that is not a list of integers"));
    tensor.shape.push_back(dim.get_int64());
  }
  if (dtype != "f32" && dtype != "f64") {
    return absl::UnimplementedError(absl::StrCat("tensor ", tensor.name, " has unknown dtype ", dtype));
  }
  if (dtype == "f64") tensor.dtype = DType::kF64;
  const int64_t num_elems = NumElems(tensor.shape);
  if (num_elems < 0 || bytes != num_elems * ElemBytes(tensor.dtype) || declared_offset != offset) {
    return Damaged(absl::StrCat("the head is inconsistent about tensor ", tensor.name));
  }
  if (static_cast<uint64_t>(bytes) > data.size()) {
    return Damaged(absl::StrCat("torn: tensor ", tensor.name, " of ", bytes, " bytes begins ", data.size(),
                                " bytes before the file's end"));
  }
  tensor.bytes = data.substr(0, bytes);
  if (ToHex(Sha256Of(tensor.bytes)) != sha256) {
    return Damaged(
        absl::StrCat("damaged: the bytes of tensor ", tensor.name, " do not match their checksum"));
  }
  return tensor;
}

// Verifies the head's checksum and returns the head's JSON text.
absl::StatusOr<absl::string_view> CheckHead(absl::string_view file) {
  if (file.size() < kFixedBytes || file.substr(0, kMagic.size()) != kMagic) {
    return Damaged(absl::StrCat("not a snapshot, or torn: a file of ", file.size(),
                                " bytes without a snapshot's signature"));
  }
  uint32_t version, json_bytes;
  std::memcpy(&version, file.data() + 8, 4);
  std::memcpy(&json_bytes, file.data() + 12, 4);
  if (version > kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("format version ", version, ", but this program reads up to version ", kVersion));
  }
  if (version == 0) return Damaged("damaged: format version 0");
  if (file.size() < kFixedBytes + json_bytes + Sha256::kBytes) {
    return Damaged(absl::StrCat("torn: a head of ", json_bytes, " bytes in a file of ", file.size()));
  }
  const Sha256::Digest digest = Sha256Of(file.substr(0, kFixedBytes + json_bytes));
  if (file.substr(kFixedBytes + json_bytes, Sha256::kBytes) !=
      absl::string_view(digest.data(), digest.size())) {
    return Damaged("damaged: the head's bytes do not match their checksum");
  }
  return file.substr(kFixedBytes, json_bytes);
}

template <typename T>
absl::Status CopyTensor(const Snapshot& snapshot, absl::string_view name, DType dtype, absl::Span<T> elems) {
  const auto found = std::find_if(snapshot.tensors.begin(), snapshot.tensors.end(),
                                  [&](const TensorView& tensor) { return tensor.name == name; });
  if (found == snapshot.tensors.end()) return absl::NotFoundError(absl::StrCat("there is no tensor ", name));
  if (found->dtype != dtype || found->bytes.size() != elems.size() * sizeof(T)) {
    return absl::FailedPreconditionError(absl::StrCat("tensor ", name, " is ", Name(found->dtype), " in ",
                                                      found->bytes.size(), " bytes, not ", Name(dtype),
                                                      " in ", elems.size() * sizeof(T)));
  }
  std::memcpy(elems.data(), found->bytes.data(), found->bytes.size());
  return absl::OkStatus();
}

template <typename T>
TensorView View(std::string name, DType dtype, std::vector<int64_t> shape, absl::Span<const T> elems) {
  return {std::move(name), dtype, std::move(shape),
          absl::string_view(reinterpret_cast<const char*>(elems.data()), elems.size() * sizeof(T))};
}

}  // namespace

TensorView ViewOf(std::string name, std::vector<int64_t> shape, absl::Span<const float> elems) {
  return View(std::move(name), DType::kF32, std::move(shape), elems);
}
TensorView ViewOf(std::string name, std::vector<int64_t> shape, absl::Span<const double> elems) {
  return View(std::move(name), DType::kF64, std::move(shape), elems);
}

absl::StatusOr<int64_t> Snapshot::Integer(const std::string& attribute) const {
  const auto found = attributes.find(attribute);
  if (found == attributes.end())
    return absl::NotFoundError(absl::StrCat("there is no attribute ", attribute));
  int64_t value;
  if (!absl::SimpleAtoi(found->second, &value)) {
    return Damaged(absl::StrCat("attribute ", attribute, "=\"", found->second, "\" is not an integer"));
  }
  return value;
}

absl::Status Snapshot::Copy(absl::string_view tensor, absl::Span<float> elems) const {
  return CopyTensor(*this, tensor, DType::kF32, elems);
}
absl::Status Snapshot::Copy(absl::string_view tensor, absl::Span<double> elems) const {
  return CopyTensor(*this, tensor, DType::kF64, elems);
}

std::string EncodeSnapshotHead(const Snapshot& snapshot) {
  json::object attributes;
  for (const auto& [key, value] : snapshot.attributes) attributes[key] = value;
  json::array tensors;
  int64_t offset = 0;
  for (const TensorView& tensor : snapshot.tensors) {
    DDPRUN_CHECK(
        NumElems(tensor.shape) * ElemBytes(tensor.dtype) == static_cast<int64_t>(tensor.bytes.size()),
        tensor.name.c_str());
    tensors.push_back(Describe(tensor, offset));
    offset += tensor.bytes.size();
  }
  json::object head;
  head["step"] = snapshot.step;
  head["world_size"] = snapshot.world_size;
  head["round"] = snapshot.round.value();
  head["attributes"] = std::move(attributes);
  head["data_bytes"] = offset;
  head["tensors"] = std::move(tensors);
  const std::string text = json::serialize(head);

  const uint32_t version = kVersion, json_bytes = static_cast<uint32_t>(text.size());
  DDPRUN_CHECK(json_bytes == text.size(), "the head exceeds 4 GiB");
  std::string bytes(kMagic);
  bytes.append(reinterpret_cast<const char*>(&version), 4);
  bytes.append(reinterpret_cast<const char*>(&json_bytes), 4);
  bytes += text;
  const Sha256::Digest digest = Sha256Of(bytes);
  bytes.append(digest.data(), digest.size());
  return bytes;
}

absl::StatusOr<ParsedSnapshot> ParseSnapshot(absl::string_view file) {
  ASSIGN_OR_RETURN(const absl::string_view text, CheckHead(file));
  json::error_code error;
  const json::value head = json::parse({text.data(), text.size()}, error);
  if (error || !head.is_object()) return Damaged("the head is not a JSON object");
  Fields fields(head.get_object());
  ParsedSnapshot parsed;
  Snapshot& snapshot = parsed.snapshot;
  snapshot.step = fields.Integer("step");
  snapshot.world_size = static_cast<int>(fields.Integer("world_size"));
  snapshot.round = Round(fields.Integer("round"));
  const json::object* attributes = fields.Object("attributes");
  const json::array* tensors = fields.Array("tensors");
  const int64_t data_bytes = fields.Integer("data_bytes");
  RETURN_IF_ERROR(fields.status());

  const size_t head_bytes = kFixedBytes + text.size() + Sha256::kBytes;
  const absl::string_view data = file.substr(head_bytes);
  if (static_cast<int64_t>(data.size()) != data_bytes) {
    return Damaged(absl::StrCat("torn: ", file.size(), " bytes instead of ", head_bytes + data_bytes));
  }
  for (const auto& [key, value] : *attributes) {
    if (!value.is_string()) return Damaged("the head has an attribute that is not a string");
    snapshot.attributes.emplace(key, Text(value));
  }
  std::set<std::string> names;
  int64_t offset = 0;
  for (const json::value& described : *tensors) {
    ASSIGN_OR_RETURN(TensorView tensor, ParseTensor(described, data.substr(offset), offset));
    offset += tensor.bytes.size();
    if (!names.insert(tensor.name).second) return Damaged(absl::StrCat("duplicate tensor ", tensor.name));
    snapshot.tensors.push_back(std::move(tensor));
  }
  if (offset != data_bytes) return Damaged("the head is inconsistent about the size of the data");
  parsed.sha256 = ToHex(Sha256Of(file.substr(0, head_bytes)));
  return parsed;
}

}  // namespace ddprun
