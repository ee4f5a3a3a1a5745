// The sum of four numbers.
module sum_of_four #(
    parameter BITS = 8
) (
    input  wire [4*BITS-1:0] terms,
    output wire [BITS+1:0]   sum
);
    wire [BITS:0] low, high;
    adder #(.BITS(BITS)) lower (.one(terms[0 +: BITS]), .other(terms[BITS +: BITS]), .sum(low));
    adder #(.BITS(BITS)) upper (.one(terms[2*BITS +: BITS]), .other(terms[3*BITS +: BITS]), .sum(high));
    adder #(.BITS(BITS + 1)) both (.one(low), .other(high), .sum(sum));
endmodule
