mod conversions;
mod functions;
