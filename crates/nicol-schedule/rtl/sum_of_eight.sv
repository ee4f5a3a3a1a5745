// The sum of eight numbers.
module sum_of_eight #(
    parameter BITS = 8
) (
    input  wire [8*BITS-1:0] terms,
    output wire [BITS+2:0]   sum
);
    wire [BITS+1:0] low, high;
    sum_of_four #(.BITS(BITS)) lower (.terms(terms[0 +: 4*BITS]), .sum(low));
    sum_of_four #(.BITS(BITS)) upper (.terms(terms[4*BITS +: 4*BITS]), .sum(high));
    adder #(.BITS(BITS + 2)) both (.one(low), .other(high), .sum(sum));
endmodule
