// The rank of a request at one worker: the sum of the weights of the features that both show, 65,534 at
// most. An adder tree of 512 terms in three steps of eight. [AlNiCo22, sum reduction]
module rank_tree #(
    parameter FEATURES = 512
) (
    input  wire                    clk,
    input  wire                    advance,
    // What the request and the worker both show.
    input  wire [FEATURES-1:0]     met,
    input  wire [8*FEATURES-1:0]   weights,
    // Three cycles later.
    output reg  [15:0]             rank
);
    localparam FIRST = FEATURES / 8;
    localparam SECOND = FIRST / 8;
    reg [11*FIRST-1:0]  first;
    reg [14*SECOND-1:0] second;
    reg [11*FIRST-1:0]  next_first;
    reg [14*SECOND-1:0] next_second;
    reg [16:0]          sum;
    reg [10:0]          eight;
    reg [13:0]          sixty_four;
    integer group, at;

    always @* begin
        for (group = 0; group < FIRST; group = group + 1) begin
            eight = 0;
            for (at = 8 * group; at < 8 * group + 8; at = at + 1)
                eight = eight + {3'b0, weights[8*at +: 8] & {8{met[at]}}};
            next_first[11*group +: 11] = eight;
        end
        for (group = 0; group < SECOND; group = group + 1) begin
            sixty_four = 0;
            for (at = 8 * group; at < 8 * group + 8; at = at + 1)
                sixty_four = sixty_four + {3'b0, first[11*at +: 11]};
            next_second[14*group +: 14] = sixty_four;
        end
        sum = 0;
        for (at = 0; at < SECOND; at = at + 1)
            sum = sum + {3'b0, second[14*at +: 14]};
    end

    always @(posedge clk) if (advance) begin
        first <= next_first;
        second <= next_second;
        rank <= (sum > 17'd65534) ? 16'd65534 : sum[15:0];
    end
endmodule
