#include "pickle_rules.h"

#include <string>

#include <catch2/catch.hpp>

#include "pickle/reader.h"

namespace muster {
namespace {

using namespace std::string_literals;

const std::string kStorage =
    "(\x8c\7storagectorch\nFloatStorage\n\x8c\1"
    "0\x8c\3"
    "cpuK\6tQ";
const std::string kShape = "K\2K\3\x86K\3K\1\x86";
const std::string kTensor = "ctorch._utils\n_rebuild_tensor_v2\n(" + kStorage + "K\0"s + kShape +
                            "\x89" + "ccollections\nOrderedDict\n)RtR";

/// Returns why the operations, as a pickle of protocol 2, are refused. Empty if they are read.
std::string refusal(const std::string& operations, TensorBytes where = TensorBytes::Beside) {
  const std::string bytes = "\x80\x02" + operations + ".";
  pickle::Graph graph;
  const auto root = pickle::read_pickle(bytes, graph, TensorRules(where), tensor_pickle_limits());
  if (root) return {};
  return (root.error().not_supported ? "has " : "torn: ") + root.error().reason;
}

TEST_CASE("pickle rules: tensors, parameters and dicts of modules are read", "[unit][sdk]") {
  CHECK(refusal(kTensor) == "");
  CHECK(refusal("ctorch._utils\n_rebuild_parameter\n(" + kTensor + "\x88}tR") == "");
  // The type of model.state_dict(): an OrderedDict with attributes.
  CHECK(refusal("ccollections\nOrderedDict\n)R(\x8c\1w" + kTensor + "u}\x8c\t_metadata}sb") == "");
  CHECK(refusal("G" + std::string(8, '\0')) == "");
  CHECK(refusal("}(" + kTensor + "K\1K\2K\3u") == "");
}

TEST_CASE("pickle rules: the storage and the key of a tensor are found", "[unit][sdk]") {
  const std::string bytes = "\x80\x02" + kTensor + ".";
  pickle::Graph graph;
  const auto root =
      pickle::read_pickle(bytes, graph, TensorRules(TensorBytes::Beside), tensor_pickle_limits());
  REQUIRE(root);
  const auto& call = graph.at(*root);
  REQUIRE(call.kind == pickle::Kind::Call);
  CHECK(torch_name(graph, call.items[0]) == TorchName::RebuildTensor);
  const StorageId id = storage_id(graph, graph.at(call.items[1]).items[0]);
  CHECK(id.key == "0");
  CHECK(pickle::class_name(graph, id.type) == "torch.FloatStorage");
}

TEST_CASE("pickle rules: a text has less than 4 GiB", "[unit][sdk]") {
  CHECK(is_text_size(0));
  CHECK(is_text_size(0xffffffff));
  CHECK_FALSE(is_text_size(0x100000000));
  CHECK_FALSE(is_text_size(0x100000001));
}

TEST_CASE("pickle rules: nothing else is called or made", "[unit][sdk]") {
  CHECK(refusal("cos\nsystem\n\x8c\2id\x85R") == "has a call of os.system, which is not executed");
  CHECK(refusal("c__main__\nPoint\n)\x81") == "has an object of the class __main__.Point");
  CHECK(refusal("c__main__\nPoint\n)}\x92") ==
        "has an object of the class __main__.Point that was made with keywords");
  CHECK(refusal("ccollections\nOrderedDict\n]\x85R") ==
        "has a call of collections.OrderedDict, which is not executed");
  CHECK(refusal("ca\x1b\nb\n)R") == "has a call of a?.b, which is not executed");
  CHECK(refusal("ctorch.storage\n_load_from_bytes\nC\2PK\x85R") == "has a file in a file");
  CHECK(refusal("ctorch.storage\n_load_from_bytes\nC\2PK\x85R", TensorBytes::Inside) == "");
  CHECK(refusal("ctorch.storage\n_load_from_bytes\nC\1x\x85R", TensorBytes::Inside) ==
        "has a tensor as Python's pickle writes it: send it with broadcast()");
  CHECK(refusal(kTensor, TensorBytes::Inside) == "has a tensor's storage, which is not in it");
  CHECK(refusal("\x8b") == "has an integer of more than 64 bits");
  CHECK(refusal("(\x91") == "has a frozenset");
  CHECK(refusal("\x96") == "has a bytearray");
  CHECK(refusal("0") == "has the opcode 48, which is not allowed");
  // A name alone does no harm: the code that creates values from the graph refuses it.
  CHECK(refusal("cos\nsystem\n") == "");
}

TEST_CASE("pickle rules: a call has what Python would need to carry it out", "[unit][sdk]") {
  const std::string rebuild = "ctorch._utils\n_rebuild_tensor_v2\n(";
  CHECK(refusal(rebuild + kStorage + "K\0"s + kShape + "tR") == "has a tensor of 4 arguments");
  CHECK(refusal(rebuild + "NK\0"s + kShape + "\x89}tR") == "has a tensor without storage");
  CHECK(refusal(rebuild + kStorage + "N" + kShape + "\x89}tR") ==
        "has a tensor whose offset, sizes or strides are no whole numbers");
  CHECK(refusal(rebuild + kStorage + "K\0K\2\x85\x88\x85\x89}tR"s) ==
        "has a tensor whose offset, sizes or strides are no whole numbers");
  CHECK(refusal(rebuild + kStorage + "K\0"s + kShape + "\x89}NtR") == "");
  CHECK(refusal(rebuild + kStorage + "K\0"s + kShape + "\x89}}\x8c\4conj\x88stR") ==
        "has a tensor that is a conjugated or negated view: save its clone()");
  CHECK(refusal("ctorch._utils\n_rebuild_parameter\nN\x88}\x87R") ==
        "has a parameter of something else than a tensor");
  CHECK(refusal("\x8c\1xQ") == "has a persistent id that is not a tensor's storage");
  CHECK(refusal("})K\1s") == "has a key that is no text, number or tensor");
  // In Python a plain dict has no attributes.
  CHECK(refusal("}}b") == "torn: attributes for no object");
}

TEST_CASE("pickle rules: the cost of a pickle is proportional to its bytes", "[unit][sdk]") {
  const std::string batch = "](" + std::string(200'000, 'N') + "e";
  CHECK(refusal(batch) == "");
  CHECK(refusal(std::string(300'000, ']') + std::string(299'999, 'a')) == "");
  CHECK(refusal(")" + std::string(100, '\x85')) == "");
  CHECK(refusal(")" + std::string(101, '\x85')) == "has more than 100 tuples inside each other");
  CHECK(refusal("N") == "");
  CHECK(refusal("(N") == "torn: not one value at the end");
}

}  // namespace
}  // namespace muster
