module causeway.invalid/peers/go

go 1.24
