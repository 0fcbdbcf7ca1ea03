module causeway.invalid/peers/httpgrpc/cases

go 1.25.0
