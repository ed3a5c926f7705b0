// SPDX-License-Identifier: Apache-2.0
#include "models/job/fields.h"

namespace tidemark {
namespace {

/// The fields of a tower, as fields of the network that holds it: "first.layers". An encoder has no experts and no
/// multi-latent attention.
void AddTower(std::vector<Field<DualEncoder>>& fields, const std::string& prefix, Decoder DualEncoder::*tower) {
  for (const Field<Decoder>& field : DecoderFields()) {
    if (field.key.starts_with("experts.") || field.key.starts_with("latent_attention.")) {
      continue;
    }
    Field<DualEncoder>& of_tower = fields.emplace_back();
    of_tower.key = prefix + field.key;
    of_tower.read = [field, tower](DualEncoder& network, const ConfigValue& value) {
      return field.read(network.*tower, value);
    };
    of_tower.example = field.example;
    of_tower.write = [field, tower](const DualEncoder& network) { return field.write(network.*tower); };
  }
}

std::vector<Field<DualEncoder>> MakeDualEncoderFields() {
  using D = DualEncoder;
  std::vector<Field<D>> fields = {
      FieldAt<D>(
          "shared", [](D & d) -> auto& { return d.shared; }, Truth{}),
      FieldAt<D>(
          "representation", [](D & d) -> auto& { return d.representation; }, WholeNumber{1, 1 << 20}),
      FieldAt<D>(
          "targets", [](D & d) -> auto& { return d.targets; }, WholeNumber{1, 1 << 16}),
      FieldAt<D>(
          "gather", [](D & d) -> auto& { return d.gather; }, Truth{}),
      FieldAt<D>(
          "lm_loss", [](D & d) -> auto& { return d.lm_loss; }, Truth{}),
  };
  AddTower(fields, "first.", &D::first);
  AddTower(fields, "second.", &D::second);
  return fields;
}

}  // namespace

const std::vector<Field<DualEncoder>>& DualEncoderFields() {
  static const std::vector<Field<DualEncoder>> fields = MakeDualEncoderFields();
  return fields;
}

}  // namespace tidemark
