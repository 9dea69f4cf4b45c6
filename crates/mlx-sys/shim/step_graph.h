// A lazy computation taken apart into nodes, and made again with our CUDA programs in prebuilt CUDA graphs.
#pragma once
#include <memory>
#include <optional>
#include <unordered_map>

#include "shim.h"

namespace mlx_shim {

struct TraceNode;
struct GraphPart;
struct GraphPlace;
struct GraphShape;
struct NodeTime;

// The nodes of a computation in an order in which they can run, and the arrays between them, by index. It holds the nodes
// as they were when it was made: evaluating the arrays afterwards does not change it.
struct Trace {
  struct Node {
    std::shared_ptr<mx::Primitive> primitive;
    std::vector<uint32_t> inputs, outputs;
  };
  struct Value {
    mx::Shape shape;
    mx::Dtype dtype;
    // What it is unless a node makes it.
    std::optional<Array> array;
  };
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<uint32_t> inputs, borrowed, outputs;

  rust::Vec<TraceNode> list() const;
  rust::Vec<uint64_t> bytes() const; // of each value
  rust::Vec<uint32_t> input_values() const { return indices(inputs); }
  rust::Vec<uint32_t> borrowed_values() const { return indices(borrowed); }
  rust::Vec<uint32_t> output_values() const { return indices(outputs); }

 private:
  static rust::Vec<uint32_t> indices(const std::vector<uint32_t>& of);
};

enum class Leaves : uint8_t;

// What computes `outputs`. `inputs` are not looked into. `constants` and `borrowed` are evaluated; any other evaluated
// array of more than one element may change from one call to the next, and makes this throw unless `leaves` allows it.
std::shared_ptr<Trace> trace(const Arrays& outputs, const Arrays& inputs, const Arrays& constants,
    const Arrays& borrowed, Leaves leaves);

class GraphSegment;

struct StepGraph {
  struct Part {
    uint32_t node = 0;                     // of the trace, where there is no segment
    std::shared_ptr<GraphSegment> segment; // with its reads and writes
    std::vector<uint32_t> reads, writes;
    std::vector<uint32_t> programs; // of the trace, in the segment
  };
  std::shared_ptr<const Trace> of;
  std::vector<Part> parts;
  std::vector<size_t> borrowed_at;      // addresses
  std::optional<Array> arena;           // of all segments
  size_t arena_at = 0;
  std::vector<uint32_t> constants_read; // by MLX's operations

  // False if a borrowed array or the arena is elsewhere: their addresses are in the graphs. MLX moves what the host reads, and
  // results may lie in the arena.
  bool fits(const Arrays& borrowed) const;
  // `inputs` are as many as those of the trace, and of their shapes and types.
  ArraysPtr call(const Arrays& inputs) const;
  // Runs it `runs` times with events between its kernels: how long each takes, in the order in which they run.
  rust::Vec<NodeTime> times(const Arrays& inputs, const Arrays& borrowed, uint32_t runs) const;
};

// Builds the graphs of a plan. Throws without CUDA, for a libmlx whose internals this shim does not know, and with what
// the driver says.
std::unique_ptr<StepGraph> step_graph(std::shared_ptr<Trace> trace, const Arrays& borrowed,
    rust::Slice<const GraphPart> parts, rust::Slice<const GraphPlace> places, const GraphShape& shape);

} // namespace mlx_shim
