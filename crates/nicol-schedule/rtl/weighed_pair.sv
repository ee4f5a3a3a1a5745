// The weights of two neighbouring features, each if it is met. It is a module of its own so that what weighs
// a bit shares a lookup table with what adds it.
module weighed_pair (
    input  wire [1:0]  met,
    input  wire [15:0] weights,
    output wire [8:0]  sum
);
    assign sum = {1'b0, weights[7:0] & {8{met[0]}}} + {1'b0, weights[15:8] & {8{met[1]}}};
endmodule
