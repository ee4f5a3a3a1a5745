// The sum of two numbers. It is a module of its own because synthesis turns longer sums into trees of lookup
// tables without carry chains, which take half as much again.
module adder #(
    parameter BITS = 8
) (
    input  wire [BITS-1:0] one,
    input  wire [BITS-1:0] other,
    output wire [BITS:0]   sum
);
    assign sum = {1'b0, one} + {1'b0, other};
endmodule
