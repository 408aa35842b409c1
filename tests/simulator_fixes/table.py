"""The items: what was wrong in the official simulator, and what only its compiler refused, with one test each.

The test of an item is the function ``test_<name>`` in one of the files beside this one.
"""

FIXES: dict[str, dict[str, str]] = {
    # release-notes/components/nki.rst, "nki.simulate correctness fixes" and "Simulator fix for ..."
    "0.4.0": {
        "skipped_rows_keep_integer_bits": "dma_copy with oob_mode.skip does not pass integers through float32",
        "shuffle_mask_255_keeps_the_destination": "nc_stream_shuffle with mask 255 keeps what dst holds, no zeros",
        "local_gather_into_views": "local_gather writes slices and .ap patterns of dst correctly",
        "matmul_of_three_dimensions": "nc_matmul copies all elements of operands with three and more dimensions",
        "quantize_to_e4m3fn": "quantize_mx to float8_e4m3fn_x4 computes the right elements and scales",
        "registers_are_offsets": "iota and affine_select take their offset from a register",
        "packed_dtypes_on_trn3": "float8_e4m3fn_x4 and float8_e5m2_x4 are multiplied correctly on trn3",
        "dma_compute_has_no_scale": "dma_compute adds its sources and nothing else: scales other than 1 are refused",
        "logical_and": "nl.logical_and compares with zero and gives one or zero",
    },
    "0.5.0": {
        "skipped_rows_of_packed_dtypes": "dma_copy with oob_mode.skip takes x4 dtypes",
        "matmul_of_a_convolution": "nc_matmul takes shifted windows of an image, operands above two dimensions",
        "while_loop_ends": "a while loop ends when its register is zero, and does not start at zero",
        "gather_transpose_keeps_rows_outside": "a transposing gather leaves dst alone where the row is out of bounds",
    },
    "0.6.0": {
        "casts_round_and_saturate": "float32 to integers: nearest, ties to even, clamped to the range",
        "match_replace_walks_backwards": "nc_match_replace8 takes its values from the last slot to the first",
        "find_index_unmatched_and_duplicates": "nc_find_index8: unmatched: all ones; duplicates: successive places",
        "reduction_into_its_own_destination": "activation with reduce_res inside dst keeps the reduction",
        "sliced_scales": "quantize_mx and nc_matmul_mx use slices of one scale tensor and leave the rest alone",
        "double_row": "nc_matmul with double_row contracts two rows and has a result of plain size",
        "overlapping_accumulation": "nc_matmul into overlapping PSUM regions adds where they overlap",
        "undefined_accumulation_warns": "nc_matmul warns where the hardware would accumulate onto something undefined",
        "operands_of_other_ranks": "tensor_copy_predicated and select_reduce need equal sizes, not ranks",
        "python_floats_as_fill": "range_select and affine_select take float(np.finfo(np.float32).min) as fill value",
    },
}

RULES: dict[str, str] = {
    # What a simulator computes happily and the compiler refuses.
    "tensor_scalar_operand_is_float32": "the tile operand of tensor_scalar is float32, not int32",
    "tensor_scalar_operand_is_a_column": "the tile operand of tensor_scalar is one value per partition, (rows, 1)",
    "shift_after_arithmetic": "right_shift is no second step of an arithmetic tensor_scalar",
    "divide_is_no_operator": "there is no divider: nl.divide is no op of an instruction",
    "divide_of_integers": "nl.divide of int32 rounds the true quotient to the result",
    "logical_cores_of_a_kernel": "two cores of one chip, no other number",
    "partitions_of_an_operand": "an operand has at most 128 partitions",
    "start_partition": "64 partitions do not start at partition 32",
    "broadcast_by_pattern": "a tile of (128, 64) does not broadcast to (128, 32, 64) without a pattern that says so",
    "fill_value_is_honoured_or_refused": "range_select does not override a fill value that the hardware lacks",
    "bias_of_an_activation": "activation takes its bias from a tile where there are no immediates",
    "dma_reads_no_psum": "dma_copy does not reach PSUM",
    # What a simulator refuses, and the hardware takes.
    "matmul_of_few_rows": "nc_matmul contracts over fewer than 128 rows",
    "transposed_load_as_moving": "a tile from load_transpose2d may be the moving operand",
    "transpose_goes_on_chip": "the result of nl.transpose is an operand of the next instruction",
    # What computes, but not what was meant.
    "copy_is_no_view": "nl.copy makes a new tile; writing it leaves the source alone",
    "wide_integers_on_vector": "int32 through tensor_scalar is exact to 2**24 only, tensor_tensor is exact",
    "local_gather_of_runs": "num_elem_per_idx counts, also where dst is larger than what is gathered",
}
